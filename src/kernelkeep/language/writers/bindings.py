"""What GLSL and WGSL share: arrays stand outside of functions, there are no pointers to them, and no small types.

- A helper function that takes arrays is written once for each set of arrays that it is called with.
- Values of 8 and 16 bits are kept in an int. Buffers of them are words: an element is cut out of its word, and written with a
  compare-and-swap, so that neighbours which others write at the same time are not lost.
- Floats with atomics are kept as their bits, in an unsigned word: the operation is a compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from ..tree import (
    Assign,
    Binary,
    BuiltinCall,
    Construct,
    Expression,
    Function,
    Increment,
    Index,
    Literal,
    Module,
    Name,
    Slice,
    Swizzle,
    Update,
    Variable,
)
from ..types import F2, F4, I4, I8, U8, Buffer, Scalar, Type
from .base import Entry, declared_variables
from .effects import root_of
from .numbers import literal
from .small_values import SmallValueWriter, element_of, has_small_field, is_small
from .texts import PRIMARY, Text, converted

# What a compare-and-swap makes of the float that it has seen, and the value of the call.
FLOAT_ATOMICS = {"add": "seen + v", "sub": "seen - v", "min": "min(seen, v)", "max": "max(seen, v)", "exchange": "v"}


class BindingWriter(SmallValueWriter):
    """A writer for a language without pointers to buffers."""

    float_atomics: ClassVar[frozenset[str]] = frozenset()  # operations on floats that the target has

    def __init__(self, module: Module, entry: Entry, calls: Mapping[str, str] | None = None) -> None:
        super().__init__(module, entry, calls)
        kernel = module.kernel
        self.shared = [one for one in declared_variables(kernel.body) if one.space == "shared"]
        self.own = {*kernel.parameters, *declared_variables(kernel.body), *(one.variable for one in module.constants)}
        self.offsets: dict[Variable, Variable] = {}  # of an array that this function was given from an element on
        for one in kernel.parameters:
            if has_small_field(element_of(one.type)):
                what = (
                    f"{self.title} has no structs with numbers of 8 or 16 bits in buffers, and {one.written} has them"
                )
                raise self.unsupported("int8", None, what)
        self.outside = {one.name for one in (*kernel.parameters, *self.shared) if one.space != "scalar"}

    # --- arrays

    def array(self, variable: Variable) -> Variable:
        """The array that a name stands for in this function."""
        return self.arrays.get(variable, variable)

    def is_packed(self, root: Variable) -> bool:
        """Whether an array has several elements in a word."""
        kind = element_of(root.type)
        return root.space == "buffer" and (is_small(kind) or kind is F2)

    def is_bits(self, root: Variable) -> bool:
        """Whether an array has the bits of its floats."""
        operations = self.effects.atomics.get(root)
        return bool(operations) and element_of(root.type) is F4 and not operations <= self.float_atomics  # type: ignore[operator]

    def is_special(self, e: Expression) -> bool:
        """Whether an element is not read and written by its name."""
        if not isinstance(e, (Index, Name)) or not isinstance(e.type, Scalar):
            return False
        root = root_of(e)
        if root is None:
            return False
        root = self.array(root)
        return self.is_packed(root) or self.is_bits(root)

    def name(self, e: Name) -> Text:
        if e.variable.space == "shared" and self.is_special(e):
            return self.loaded(e)
        return super().name(e)

    def variable(self, variable: Variable) -> str:
        found = self.variables.get(variable)
        if found is None:
            found = self.names.free(variable.name)
            if variable not in self.own and variable.name in self.outside:
                found = self.names.other(found)  # an array outside of the function has this name
            self.variables[variable] = found
        return found

    def index(self, e: Index) -> Text:
        if self.is_special(e):
            return self.loaded(e)
        return self.place_of(e), PRIMARY

    def place_of(self, e: Expression) -> str:
        """`array[index]`, whatever is in it."""
        if not isinstance(e, Index):
            return super().name(e)[0] if isinstance(e, Name) else self.x(e, PRIMARY)
        if self.is_variable(e):
            return self.place_of(e.base)
        return f"{self.place_of(e.base)}[{self.element_index(e)}]"

    def element_index(self, e: Index) -> str:
        return self.index_text(self.shifted(e))

    def is_variable(self, e: Index) -> bool:
        """Whether the caller gave one variable, `&v`, for the array that this is an element of."""
        kind = e.base.type
        return (
            isinstance(e.base, Name) and isinstance(kind, Buffer) and self.array(e.base.variable).type is kind.element
        )

    def shifted(self, e: Index) -> Expression:
        """The index of an element in the array that the caller has."""
        offset = self.offsets.get(e.base.variable) if isinstance(e.base, Name) else None
        return e.index if offset is None else self.behind(offset, e.index)

    def behind(self, offset: Variable, index: Expression) -> Expression:
        return Binary(index.at, I4, "+", Name(index.at, I4, offset), converted(index, I4))

    def index_text(self, index: Expression) -> str:
        return self.x(converted(index, I4) if index.type in (I8, U8) else index)

    def indices(self, e: Expression) -> list[Expression]:
        found: list[Expression] = []
        at: Expression = e
        while isinstance(at, Index):
            if not self.is_variable(at):
                found.insert(0, self.shifted(at))
            at = at.base
        return found

    def loaded(self, e: Expression) -> Text:
        raise NotImplementedError

    def plain_store(self, target: Expression) -> bool:
        return not self.is_special(target)

    def element_call(self, name: str, e: Expression, *values: str) -> str:
        """A call of a helper function for an element of an array, with its indices and values."""
        given = [self.x(converted(one, I4)) for one in self.indices(e)]
        return f"{name}({', '.join([*given, *values])})"

    # --- functions

    def specialised(self, function: Function, arguments: tuple[Expression, ...]) -> tuple[str, tuple[Expression, ...]]:
        arrays: dict[Variable, Variable] = {}
        given: list[Expression] = []
        key: list[object] = [function]
        local: dict[Variable, Variable] = {}
        named = []
        offsets: dict[Variable, Variable] = {}
        for parameter, argument in zip(function.parameters, arguments, strict=True):
            if not isinstance(parameter.type, Buffer):
                given.append(argument)
                continue
            base = argument.base if isinstance(argument, Slice) else argument
            assert isinstance(base, Name)
            root = self.array(base.variable)
            if root.space in ("buffer", "shared", "constant"):
                arrays[parameter] = root
                key.append(root)
                named.append(self.variable(root))
            elif root in local:
                arrays[parameter] = local[root]
                key.append(list(local).index(root))
            else:
                own = Variable(parameter.name, root.type, "parameter", parameter.at)
                local[root] = arrays[parameter] = own
                key.append(root.type)
                given.append(base)
            offset = self.offset_of(argument, base)
            if offset is not None:
                offset_name = self.names.derived(f"{parameter.name}_from")
                offsets[parameter] = Variable(offset_name, I4, "parameter", parameter.at)
                key.append("from")
                given.append(offset)
        found = self.written.get(tuple(key))
        if found is None:
            found = self.names.free(function.name)
            if found in self.written.values():
                found = self.names.new("_".join([found, *named]))
            before, self.offsets = self.offsets, offsets
            self.function(function, tuple(key), found, arrays)
            self.offsets = before
        return found, tuple(given)

    def offset_of(self, argument: Expression, base: Name) -> Expression | None:
        """From which element on an array is given, where it is not the first."""
        own = self.offsets.get(base.variable)
        if not isinstance(argument, Slice):
            return None if own is None else Name(argument.at, I4, own)
        return converted(argument.offset, I4) if own is None else self.behind(own, argument.offset)

    # --- built-ins

    def needs_statement(self, e: Expression) -> bool:
        if isinstance(e, BuiltinCall) and e.builtin.rule == "load4":
            array = e.arguments[0]
            return not isinstance(array, Name) or array.variable.space not in ("buffer", "shared", "constant")
        if isinstance(e, (Assign, Update, Increment)):
            root = root_of(e.target)
            if isinstance(e, Increment) and e.is_postfix and not self.plain_value(e.type):
                return True
            return isinstance(e.target, Index) and root is not None and root.space != "local"
        return False

    def hoist(self, e: Expression) -> Expression:
        if isinstance(e, BuiltinCall) and e.builtin.rule == "load4":
            return self.four_loads(e.arguments[0], e.arguments[1], e.type)
        return super().hoist(e)

    def four_loads(self, array: Expression, index: Expression, kind: Type) -> Construct:
        index = index if isinstance(index, Literal) else self.keep(index, "at")
        return Construct(array.at, kind, tuple(self.nth(array, index, at) for at in range(4)))

    def nth(self, array: Expression, index: Expression, at: int) -> Index:
        """The element `at` behind `index`."""
        if isinstance(index, Literal):
            index = replace(index, value=int(index.value) + at)
        elif at:
            index = Binary(array.at, index.type, "+", index, literal(at, index.type))
        return Index(array.at, F4, array, index)

    def evaluate(self, e: Expression) -> None:
        if isinstance(e, BuiltinCall) and e.builtin.rule == "store4":
            if id(e) in self.effects.spilled:
                e = self.with_kept_operands(e)
            array, index, value = e.arguments  # type: ignore[attr-defined]
            if not (isinstance(array, Name) and self.array(array.variable).space in ("buffer", "shared")):
                index = index if isinstance(index, Literal) else self.keep(index, "at")
                value = self.keep(value, "value")
                for at, one in enumerate("xyzw"):
                    self.set(self.nth(array, index, at), Swizzle(e.at, F4, value, one))
                return
        super().evaluate(e)

    def four(self, e: BuiltinCall) -> Text:
        array = e.arguments[0]
        assert isinstance(array, Name)
        index = converted(e.arguments[1], I4)
        offset = self.offsets.get(array.variable)
        given = [self.x(index if offset is None else self.behind(offset, index))]
        given += [self.x(value, 2) for value in e.arguments[2:]]
        return f"{self.four_helper(e.builtin.rule, self.array(array.variable))}({', '.join(given)})", PRIMARY

    def four_helper(self, rule: str, root: Variable) -> str:
        """A function that loads or stores four elements of an array."""
        raise NotImplementedError
