"""Expressions. What an expression does is written as lines before the statement; what it is worth is a `Value`.

The order of evaluation is from left to right: where a later operand does something, the values of earlier ones are kept first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ....language.tree import (
    Assign,
    Binary,
    BuiltinCall,
    Call,
    Comma,
    Construct,
    Convert,
    Expression,
    Field,
    Increment,
    Index,
    Literal,
    Logical,
    Name,
    Place,
    Swizzle,
    Ternary,
    Unary,
    Update,
    has_effect,
)
from ....language.types import VOID, Array, Buffer, Scalar, StructType, Type, Vector, limits
from .builtins import BuiltinCalls
from .code import Code, Value, of_type
from .index_values import ARITHMETIC
from .operations import Operations
from .storage import Storage, StorageAccess, count_elements
from .targets import ElementTarget, SlotTarget, Target, VariableTarget, VectorTarget, checked

if TYPE_CHECKING:
    from .module import FunctionScope

_XYZW = "xyzw"


class Expressions:
    """Writes the expressions of one function."""

    def __init__(self, code: Code, scope: FunctionScope) -> None:
        self.code = code
        self.scope = scope
        self.operations = Operations(code)
        self.access = StorageAccess(code)
        self.builtins = BuiltinCalls(self)
        self._kinds: dict[type[Expression], Callable[..., Value]] = {
            Literal: self._literal, Name: self._name, Unary: self._unary, Logical: self._logical, Ternary: self._ternary,
            Comma: self._comma, Increment: self._increment, Convert: self._convert, Call: self._call,
            BuiltinCall: self.builtins.call, Construct: self._construct, Index: self._index, Field: self._field,
            Swizzle: self._swizzle, Update: self._update,
        }  # fmt: skip

    # --- what statements call

    def value(self, expression: Expression, *, raw: bool = False) -> Value:
        """The value of an expression. `raw`: a float need not be rounded, because it is stored at once."""
        if isinstance(expression, Binary):
            return self._binary(expression, raw)
        if isinstance(expression, Assign):
            return self._assign(expression)
        return self._kinds[type(expression)](expression)

    def evaluate(self, expression: Expression) -> None:
        """Do what an expression does."""
        if isinstance(expression, Assign):
            self._store(expression)
            return
        if isinstance(expression, Increment):
            self._increment(expression, is_used=False)
            return
        if isinstance(expression, Update):
            self._update(expression, is_used=False)
            return
        value = self.value(expression)
        if not value.is_fixed and value.text and not value.text.isidentifier():
            self.code.add(value.text)

    def values(self, expressions: Iterable[Expression]) -> list[Value]:
        """The values of several expressions, evaluated in order."""
        found: list[Value] = []
        for expression in expressions:
            mark = len(self.code.lines)
            value = self.value(expression)
            if has_effect(expression):
                found = self._keep_before(mark, found)
            found.append(value)
        return found

    def initial(self, variable_type: Type, value: Expression, is_index: bool) -> Value:
        """The value that a variable begins with."""
        if is_index and isinstance(variable_type, Scalar) and variable_type.kind == "integer":
            return self._without_overflow(value, variable_type)
        return self.value(value)

    def index_value(self, expression: Expression) -> Value:
        """The value of an index: not wrapped, so that an overflow is seen as one."""
        if isinstance(expression, Binary) and expression.operator in ARITHMETIC and self._overflows(expression):
            left = self.index_value(expression.left)
            mark = len(self.code.lines)
            right = self.index_value(expression.right)
            if has_effect(expression.right):
                (left,) = self._keep_before(mark, [left])
            return self.operations.binary(expression.operator, expression.type, left, right, expression.at, exact=True)
        if isinstance(expression, Unary) and expression.operator == "-" and self._overflows(expression):
            return self.operations.unary("-", expression.type, self.index_value(expression.operand), exact=True)
        if isinstance(expression, Convert) and _is_integer(expression.operand.type):
            assert isinstance(expression.operand.type, Scalar)
            inner = self._without_overflow(expression.operand, expression.operand.type)
            return self.operations.convert(inner, expression.operand.type, expression.type)
        return self.value(expression)

    # --- names and literals

    def _literal(self, expression: Literal) -> Value:
        value = expression.value
        if isinstance(value, bool | int):
            return Value(repr(value) if value >= 0 else f"({value})", int(value), int(value), True)
        if isinstance(value, str):
            return Value(repr(value), is_fixed=True)
        if value != value:
            return Value("NAN", is_fixed=True)
        text = repr(value).replace("inf", "INF")
        return Value(text if not text.startswith("-") else f"({text})", is_fixed=True)

    def _name(self, expression: Name) -> Value:
        variable = expression.variable
        if variable.value is not None and isinstance(variable.type, Scalar) and variable.space != "parameter":
            return self._literal(variable.value)
        if isinstance(variable.type, Array | Buffer):
            return Value(self.scope.names.get(variable, variable.name))
        return self._variable(expression).load()

    def _variable(self, expression: Name) -> VariableTarget | ElementTarget:
        variable = expression.variable
        if (storage := self.scope.storages.get(variable)) is not None:  # shared by the group
            return ElementTarget(self.access, storage, "0", expression.at)
        return VariableTarget(
            self.code, self.scope.names[variable], variable.type, expression.at, variable.written or variable.name,
            may_be_unset=variable in self.scope.may_be_unset,
        )  # fmt: skip

    # --- operators

    def _unary(self, expression: Unary) -> Value:
        return self.operations.unary(expression.operator, expression.type, self.value(expression.operand))

    def _binary(self, expression: Binary, raw: bool = False) -> Value:
        left, right = self.values((expression.left, expression.right))
        return self.operations.binary(expression.operator, expression.left.type, left, right, expression.at, raw=raw)

    def _logical(self, expression: Logical) -> Value:
        left = self.value(expression.left)
        mark = len(self.code.lines)
        with self.code.deeper():
            right = self.value(expression.right)
            if len(self.code.lines) == mark:
                word = "and" if expression.operator == "&&" else "or"
                return Value(f"({left.text} {word} {right.text})", 0, 1)
        name = self.code.new_name()
        self.code.insert(mark, f"{name} = {left.text}")
        self.code.insert(mark + 1, f"if {name}:" if expression.operator == "&&" else f"if not {name}:")
        with self.code.deeper():
            self.code.add(f"{name} = {right.text}")
        return Value(name, 0, 1, True)

    def _ternary(self, expression: Ternary) -> Value:
        condition = self.value(expression.condition)
        if expression.type is VOID:
            with self.code.block(f"if {condition.text}:"):
                self.evaluate(expression.then)
            with self.code.block("else:"):
                self.evaluate(expression.otherwise)
            return Value("None", is_fixed=True)
        begin = len(self.code.lines)
        with self.code.deeper():
            then = self.value(expression.then)
            middle = len(self.code.lines)
            otherwise = self.value(expression.otherwise)
        kind = of_type("", expression.type)
        if len(self.code.lines) == begin:
            return kind._replace(text=f"({then.text} if {condition.text} else {otherwise.text})")
        name = self.code.new_name()
        self.code.insert(begin, f"if {condition.text}:")
        with self.code.deeper():
            self.code.insert(middle + 1, f"{name} = {then.text}")
        self.code.insert(middle + 2, "else:")
        with self.code.deeper():
            self.code.add(f"{name} = {otherwise.text}")
        return kind._replace(text=name, is_fixed=True)

    def _comma(self, expression: Comma) -> Value:
        self.evaluate(expression.first)
        return self.value(expression.last)

    def _convert(self, expression: Convert) -> Value:
        return self.operations.convert(self.value(expression.operand), expression.operand.type, expression.type)

    def _construct(self, expression: Construct) -> Value:
        texts = [value.text for value in self.values(expression.arguments)]
        if isinstance(expression.type, Vector):
            return Value(f"({', '.join(texts)})")
        return Value(f"[{', '.join(texts)}]")

    # --- assignments

    def _assign(self, expression: Assign) -> Value:
        value = self.code.keep(self._assigned_value(expression, target := self._target_of(expression)))
        target.store(value)
        return value

    def _store(self, expression: Assign) -> None:
        target = self._target_of(expression)
        target.store(self._assigned_value(expression, target, raw=target.rounds))

    def _target_of(self, expression: Assign | Update) -> Target:
        return self.target(expression.target, is_kept=has_effect(expression.value))

    def _assigned_value(self, expression: Assign, target: Target, raw: bool = False) -> Value:
        if self._is_index(expression.target):
            assert isinstance(target.type, Scalar)
            return self._without_overflow(expression.value, target.type)
        return self.value(expression.value, raw=raw)

    def _update(self, expression: Update, is_used: bool = True) -> Value:
        target = self._target_of(expression)
        computed, kind = expression.computed, target.type
        before = target.load()
        mark = len(self.code.lines)
        is_exact = computed is kind and expression.operator in ARITHMETIC and self._is_index(expression.target)
        value = self.index_value(expression.value) if is_exact else self.value(expression.value)
        if has_effect(expression.value):
            (before,) = self._keep_before(mark, [before])
        left = self.operations.convert(before, kind, computed)
        raw = not is_used and computed is kind and target.rounds
        sign, at = expression.operator, expression.at
        result = self.operations.binary(sign, computed, left, value, at, exact=is_exact, raw=raw)
        if is_exact:
            assert isinstance(kind, Scalar)
            result = self._check_overflow(result, kind, expression.at)
        result = self.operations.convert(result, computed, kind)
        if not is_used:
            target.store(result)
            return result
        kept = self.code.keep(result)
        target.store(kept)
        return kept

    def _increment(self, expression: Increment, is_used: bool = True) -> Value:
        target = self.target(expression.target, is_kept=False)
        kind = target.type
        assert isinstance(kind, Scalar)
        before = target.load()
        if expression.is_postfix and is_used:
            before = self.code.keep(before)
        one = Value("1", 1, 1, True) if kind.kind == "integer" else Value("1.0", is_fixed=True)
        is_exact = self._is_index(expression.target)
        after = self.operations.binary(expression.operator[0], kind, before, one, expression.at, exact=is_exact)
        if is_exact:
            after = self._check_overflow(after, kind, expression.at)
        if not expression.is_postfix and is_used:
            after = self.code.keep(after)
        target.store(after)
        return before if expression.is_postfix else after

    # --- overflow into an index

    def _is_index(self, target: Expression) -> bool:
        return (
            isinstance(target, Name)
            and target.variable in self.scope.index_variables
            and isinstance(target.type, Scalar)
            and target.type.kind == "integer"
        )

    def _overflows(self, expression: Binary | Unary) -> bool:
        """Whether wrapping is a mistake in an index: unsigned numbers wrap on purpose when a negative one is added."""
        kind = expression.type
        if not isinstance(kind, Scalar) or kind.kind != "integer":
            return False
        return kind.signed or (isinstance(expression, Binary) and expression.operator == "*")

    def _without_overflow(self, expression: Expression, kind: Scalar) -> Value:
        return self._check_overflow(self.index_value(expression), kind, expression.at)

    def _check_overflow(self, value: Value, kind: Scalar, at: Place) -> Value:
        if value.fits(kind):
            return value
        least, most = limits(kind)
        kept = self.code.keep(value)
        self.code.add(
            f"if not {least} <= {kept.text} <= {most}: overflow({self.code.point(at, '', kind)}, me, {kept.text})"
        )
        return Value(kept.text, least, most, True)

    # --- parts of something

    def target(self, expression: Expression, *, is_kept: bool) -> Target:
        """A place that is assigned to. `is_kept`: an index must not change until the value is there."""
        if isinstance(expression, Name):
            return self._variable(expression)
        if isinstance(expression, Index):
            found = self.element(expression, is_kept=is_kept)
            if found is not None:
                return found
            if isinstance(expression.base.type, Vector):
                whole = self.target(expression.base, is_kept=is_kept)
                index = self._checked_index(expression, "", is_kept)
                return VectorTarget(self.code, whole, index, expression.type, expression.at)
            container = self._container(expression.base, is_kept)
            index = self._checked_index(expression, container, is_kept)
            return SlotTarget(
                self.code, f"{container}[{index}]", expression.type, expression.at, _described(expression)
            )
        if isinstance(expression, Field):
            container = self._container(expression.base, is_kept)
            text = f"{container}[{_field_number(expression)}]"
            return SlotTarget(self.code, text, expression.type, expression.at, _described(expression))
        assert isinstance(expression, Swizzle)
        whole = self.target(expression.base, is_kept=is_kept)
        elements = [_XYZW.index(one) for one in expression.elements]
        return VectorTarget(self.code, whole, elements, expression.type, expression.at)

    def element(self, expression: Expression, *, is_kept: bool) -> ElementTarget | None:
        """An element of a buffer or shared array, or a shared variable; None where it is something else."""
        if isinstance(expression, Name):
            found = self._variable(expression)
            return found if isinstance(found, ElementTarget) else None
        if not isinstance(expression, Index):
            return None
        chain: list[Index] = [expression]
        while isinstance(chain[-1].base, Index):
            chain.append(chain[-1].base)
        base = chain[-1].base
        storage = self.scope.storages.get(base.variable) if isinstance(base, Name) else None
        if storage is None or isinstance(expression.base.type, Vector):
            return None
        chain.reverse()
        return ElementTarget(self.access, storage, self._flat_index(storage, chain, is_kept), expression.at)

    def _flat_index(self, storage: Storage, chain: Sequence[Index], is_kept: bool) -> str:
        texts: list[str] = []
        for one in chain:
            kind = one.base.type
            assert isinstance(kind, Array | Buffer)
            stride = count_elements(kind.element)
            limit: str | int = kind.length if isinstance(kind, Array) else f"{storage.prefix}_n"
            if isinstance(kind, Buffer) and stride > 1:
                limit = f"{storage.prefix}_n // {stride}"
            index = self._simple(self.index_value(one.index), is_kept or len(chain) > 1)
            self.access.check_bounds(index, limit, one.index.at, storage.title, one.index.type)
            texts.append(index.text if stride == 1 else f"{index.text} * {stride}")
        if len(texts) == 1:
            return texts[0]
        return self.code.keep(Value(" + ".join(texts))).text

    def _checked_index(self, expression: Index, base: str, is_kept: bool) -> str:
        """The index of an element of a vector, or of a list `base`."""
        index = self._simple(self.index_value(expression.index), is_kept)
        kind = expression.base.type
        length = kind.length if isinstance(kind, Array | Vector) else f"len({base})"
        self.access.check_bounds(index, length, expression.index.at, _described(expression.base), expression.index.type)
        return index.text

    def _simple(self, value: Value, is_kept: bool) -> Value:
        """A value with a short text: it is used several times."""
        if value.is_fixed or (value.text.isidentifier() and not is_kept):
            return value
        return self.code.keep(value)

    def _container(self, expression: Expression, is_kept: bool) -> str:
        """The list of a struct or local array, to change one of its parts."""
        if isinstance(expression, Name) and expression.variable not in self.scope.storages:
            return self.scope.names[expression.variable]
        return self.target(expression, is_kept=is_kept).container()

    def _index(self, expression: Index) -> Value:
        found = self.element(expression, is_kept=False)
        if found is not None:
            return found.load()
        base, mark = self._part(expression.base), len(self.code.lines)
        index = self._checked_index(expression, base.text, False)
        if has_effect(expression.index):
            (base,) = self._keep_before(mark, [base])
        value = of_type(f"{base.text}[{index}]", expression.type)
        return self._checked_part(value, expression)

    def _field(self, expression: Field) -> Value:
        base = self._part(expression.base)
        return self._checked_part(of_type(f"{base.text}[{_field_number(expression)}]", expression.type), expression)

    def _swizzle(self, expression: Swizzle) -> Value:
        base = self._part(expression.base)
        elements = [_XYZW.index(one) for one in expression.elements]
        if len(elements) == 1:
            value = of_type(f"{base.text}[{elements[0]}]", expression.type)
        else:
            text = base.text if base.text.isidentifier() else self.code.keep(base).text
            value = Value(f"({', '.join(f'{text}[{one}]' for one in elements)})")
        return self._checked_part(value, expression)

    def _part(self, expression: Expression) -> Value:
        """A struct, array or vector of which a part is read: the other parts may be unset."""
        if isinstance(expression, Name) and expression.variable not in self.scope.storages:
            return Value(self.scope.names[expression.variable])
        if isinstance(expression, Field):
            base = self._part(expression.base)
            return Value(f"{base.text}[{_field_number(expression)}]")
        if isinstance(expression, Index) and isinstance(expression.base.type, Array | Buffer):
            if (found := self.element(expression, is_kept=False)) is not None:
                return found.load()
            base = self._part(expression.base)
            index = self._checked_index(expression, base.text, False)
            return Value(f"{base.text}[{index}]")
        return self.value(expression)

    def _checked_part(self, value: Value, expression: Field | Index | Swizzle) -> Value:
        root: Expression = expression
        while isinstance(root, Field | Index | Swizzle):
            root = root.base
        if isinstance(root, Name) and root.variable in self.scope.always_set:
            return value
        if not isinstance(root, Name):
            return value
        return checked(self.code, value, expression.type, expression.at, _described(expression))

    # --- calls

    def _call(self, expression: Call) -> Value:
        function = expression.function
        bound: dict[int, Storage] = {}
        texts: list[str] = []
        given: list[tuple[int, Expression]] = []
        for number, argument in enumerate(expression.arguments):
            if isinstance(argument.type, Array | Buffer):
                assert isinstance(argument, Name)
                storage = self.scope.storages.get(argument.variable)
                if storage is not None:
                    bound[number] = storage
                    continue
            given.append((number, argument))
        values = self._arguments(function.parameters, given)
        for (_, argument), value in zip(given, values, strict=True):
            texts.append(f"copied({value.text})" if isinstance(argument.type, StructType) else value.text)
        name = self.scope.variant(function, bound)
        call = f"{name}({', '.join([*self.scope.context, *texts])})"
        result = self.code.new_name()
        if function.has_barrier:
            self.code.add(f"{result}, me, lo, many = yield from {call}")
        elif function.result is VOID:
            self.code.add(call)
        else:
            self.code.add(f"{result} = {call}")
        if function.result is VOID:
            return Value("None", is_fixed=True)
        return of_type(result, function.result, is_fixed=True)

    def _arguments(self, parameters: Sequence[object], given: list[tuple[int, Expression]]) -> list[Value]:
        found: list[Value] = []
        for number, argument in given:
            mark = len(self.code.lines)
            if parameters[number] in self.scope.index_variables and _is_integer(argument.type):
                assert isinstance(argument.type, Scalar)
                value = self._without_overflow(argument, argument.type)
            else:
                value = self.value(argument)
            if has_effect(argument):
                found = self._keep_before(mark, found)
            found.append(value)
        return found

    def _keep_before(self, mark: int, values: list[Value]) -> list[Value]:
        """Give values that may change a name, before the lines from `mark` on."""
        found = []
        for value in values:
            if value.is_fixed:
                found.append(value)
                continue
            name = self.code.new_name()
            self.code.insert(mark, f"{name} = {value.text}")
            mark += 1
            found.append(Value(name, value.low, value.high, True))
        return found


def _is_integer(kind: Type) -> bool:
    return isinstance(kind, Scalar) and kind.kind == "integer"


def _field_number(expression: Field) -> int:
    assert isinstance(expression.base.type, StructType)
    return [name for name, _ in expression.base.type.fields].index(expression.name)


def _described(expression: Expression) -> str:
    """A part of something as the user wrote it, without indices."""
    if isinstance(expression, Name):
        return expression.variable.written or expression.variable.name
    if isinstance(expression, Field):
        return f"{_described(expression.base)}.{expression.name}"
    if isinstance(expression, Swizzle):
        return f"{_described(expression.base)}.{expression.elements}"
    if isinstance(expression, Index):
        return f"{_described(expression.base)}[…]"
    return "this value"
