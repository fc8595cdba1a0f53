"""Calls of helper functions and built-ins."""

from __future__ import annotations

from collections.abc import Mapping

from ..builtins import (
    BUILTINS,
    CONSTRUCTORS,
    CONVERSIONS,
    COUNTERS,
    OPERATORS,
    RECIPROCALS,
    TAKES_FLAGS,
    Builtin,
    Spelling,
)
from ..problems import Problems, nearest
from ..tree import (
    BuiltinCall,
    Call,
    Construct,
    Expression,
    Function,
    Index,
    Literal,
    Name,
    Place,
    Slice,
    Swizzle,
    Variable,
    has_effect,
)
from ..types import (
    ANY_FLOAT,
    BOOL,
    F4,
    I4,
    INVALID,
    TEXT,
    U4,
    VOID,
    Array,
    Buffer,
    Scalar,
    Type,
    Vector,
    vector,
)
from .assignments import root_of
from .constants import constant_value
from .conversions import Conversions, invalid
from .expressions import Expressions, arithmetic_type
from .scopes import Scopes

_FLOAT4 = vector(F4, 4)


class Calls:
    """Makes typed calls. `extra` has built-ins that not every body can use."""

    def __init__(
        self,
        problems: Problems,
        scopes: Scopes,
        conversions: Conversions,
        expressions: Expressions,
        extra: Mapping[str, Spelling],
    ) -> None:
        self._problems = problems
        self._scopes = scopes
        self._conversions = conversions
        self._expressions = expressions
        self._extra = extra

    def _error(self, at: Place, sentence: str) -> Expression:
        self._problems.error(at, sentence)
        return invalid(at)

    def call(self, name: str, arguments: list[Expression], at: Place) -> Expression:
        """A call of whatever has that name. A function that the user defined comes first."""
        found = self._scopes.find(name)
        if isinstance(found, Function):
            return self.call_helper(found, arguments, at)
        if found is not None:
            return self._error(at, f"{name} is a variable and cannot be called")
        if name == self._scopes.function.name:
            return self._error(at, f"{name} calls itself, and recursion is not possible on a GPU: use a loop")
        if any(argument.type is INVALID for argument in arguments):
            return invalid(at)
        if name in CONVERSIONS:
            if len(arguments) != 1:
                return self._wrong_count(name, 1, len(arguments), at)
            return self.cast(CONVERSIONS[name], arguments[0], at)
        if name in CONSTRUCTORS:
            return self.construct(CONSTRUCTORS[name], arguments, at)
        if name in OPERATORS:
            if len(arguments) != 2:
                return self._wrong_count(name, 2, len(arguments), at)
            return self._expressions.binary(OPERATORS[name], arguments[0], arguments[1], at)
        if name in RECIPROCALS and len(arguments) == 1:
            return self._expressions.binary("/", Literal(at, ANY_FLOAT, 1.0), arguments[0], at)
        if name in COUNTERS and len(arguments) == 1:
            name, arguments = COUNTERS[name], [*arguments, Literal(at, I4, 1)]
        if name in TAKES_FLAGS:
            arguments = []
        spelling = self._extra.get(name) or BUILTINS.get(name)
        if spelling is None:
            return self._unknown(name, at)
        return self._builtin(name, spelling, arguments, at)

    def _unknown(self, name: str, at: Place) -> Expression:
        from ..hints import unknown_function

        if (sentence := unknown_function(name)) is not None:
            self._problems.error_once(at, sentence)
            return invalid(at)
        if (line := self._scopes.prototypes.get(name)) is not None:
            return self._error(at, f"{name} is declared in line {line}: put its definition above its first call")
        known = (*self._scopes.visible(), *self._extra, *BUILTINS, *CONVERSIONS, *CONSTRUCTORS)
        return self._error(at, f"unknown function {name}{nearest(name, known)}")

    def _wrong_count(self, name: str, wanted: int, given: int, at: Place) -> Expression:
        return self._error(at, f"{name} takes {wanted} argument{'' if wanted == 1 else 's'}, got {given}")

    def cast(self, target: Type, operand: Expression, at: Place) -> Expression:
        """`(float)x`."""
        if target is VOID:
            return self._error(at, "nothing can be cast to void: leave the cast out")
        return self._conversions.convert(operand, target, "what is cast", is_written=True)

    def construct(self, kind: Vector, arguments: list[Expression], at: Place) -> Expression:
        """A vector made of numbers and shorter vectors; of one number, it has that number in every element."""
        if len(arguments) == 1 and isinstance(arguments[0].type, Scalar):
            return self._conversions.convert(arguments[0], kind, is_written=True)
        elements: list[Expression] = []
        for argument in arguments:
            if isinstance(argument.type, Vector):
                if has_effect(argument):
                    return self._error(argument.at, "a vector that is part of another must not have side effects")
                each = "xyzw"[: argument.type.length]
                elements += [Swizzle(argument.at, argument.type.element, argument, one) for one in each]
            else:
                elements.append(argument)
        if len(elements) != kind.length:
            return self._error(at, f"{kind} takes {kind.length} elements, got {len(elements)}")
        convert = self._conversions.convert
        return Construct(at, kind, tuple(convert(element, kind.element, "an element") for element in elements))

    # --- helper functions

    def call_helper(self, function: Function, arguments: list[Expression], at: Place) -> Expression:
        """A call of a helper function."""
        if len(arguments) != len(function.parameters):
            return self._wrong_count(function.name, len(function.parameters), len(arguments), at)
        self._scopes.function.has_barrier |= function.has_barrier
        given = []
        for parameter, argument in zip(function.parameters, arguments, strict=True):
            what = f"{parameter.written} of {function.name}"
            if isinstance(parameter.type, Buffer):
                array = self._array(parameter.type, argument, what)
                if _is_own(array):
                    from .atomics import uses_atomics  # few calls pass an array that one work-item has for itself

                    if uses_atomics(function, parameter):
                        message = f"{what} must be a buffer or a shared array: the function uses atomics on it"
                        array = self._error(argument.at, message)
                given.append(array)
            else:
                given.append(self._conversions.convert(argument, parameter.type, what))
        return Call(at, function.result, function, tuple(given))

    def _array(self, wanted: Buffer, argument: Expression, what: str) -> Expression:
        """An argument for a parameter that takes an array: its name, a part of it, or `&v`."""
        kind = argument.type
        base = argument.base if isinstance(argument, Slice) else argument
        seen_otherwise = isinstance(argument, Slice) and self._expressions.pointers.views.is_other(argument)
        if seen_otherwise and isinstance(kind, Buffer) and kind.element is wanted.element:
            other = "not one seen as such by a cast or an address: pass the array and an index"
            self._problems.error(argument.at, f"{what} must be an array of {wanted.element} itself, {other}")
            return invalid(argument.at)
        if not isinstance(base, Name) or not isinstance(kind, (Array, Buffer)) or kind.element is not wanted.element:
            if kind is not INVALID:
                self._problems.error(
                    argument.at, f"{what} must be the name of an array of {wanted.element}, got {kind}"
                )
            return invalid(argument.at)
        if wanted.access != "r":
            self._expressions.assignments.check_writable(base.variable, argument.at)
        return argument if isinstance(base.type, (Array, Buffer)) else base

    # --- built-ins

    def _builtin(self, name: str, spelling: Spelling, arguments: list[Expression], at: Place) -> Expression:
        builtin = spelling.builtin
        if len(arguments) != builtin.count and builtin.rule != "print":
            return self._wrong_count(name, builtin.count, len(arguments), at)
        self._scopes.function.has_barrier |= builtin.name == "kk_barrier"
        convert = self._conversions.convert
        rule, given = builtin.rule, tuple(arguments)
        if rule == "position":
            given = (convert(self._conversions.integer(given[0], "the dimension"), I4),)
            value = constant_value(given[0])
            if value is not None and value not in (0, 1, 2):
                return self._error(given[0].at, f"the dimension of {name} must be 0, 1 or 2, got {value}")
            return BuiltinCall(at, I4, builtin, given)
        if rule == "fixed":
            pairs = zip(given, builtin.parameters, strict=True)
            given = tuple(convert(argument, kind, f"the argument of {name}") for argument, kind in pairs)
            return BuiltinCall(at, builtin.result, builtin, given)
        if rule == "atomic":
            return self._atomic(builtin, given, at)
        if rule in ("load4", "store4"):
            return self._four(builtin, given, at)
        if rule == "print":
            return BuiltinCall(at, VOID, builtin, tuple(map(self._printed, given)))
        given = tuple(map(self._conversions.value, given))
        if any(argument.type is INVALID for argument in given):
            return invalid(at)
        if rule == "bits":
            if not isinstance(given[0].type, Scalar) or given[0].type not in (I4, U4, F4):
                return self._error(
                    given[0].at, f"the argument of {name} must be int, uint or float, got {given[0].type}"
                )
            return given[0] if given[0].type is builtin.result else BuiltinCall(at, builtin.result, builtin, given)
        if rule == "integer":
            given = (self._conversions.integer(given[0], f"the argument of {name}"),)
            return BuiltinCall(at, given[0].type, builtin, given)
        return self._math(name, spelling, given, at)

    def _math(self, name: str, spelling: Spelling, given: tuple[Expression, ...], at: Place) -> Expression:
        """A function whose arguments have one type."""
        builtin = spelling.builtin
        kind = self._meeting(builtin, given, spelling.precision)
        if kind is None:
            kinds = " and ".join(str(argument.type) for argument in given)
            return self._error(at, f"{name} cannot be applied to {kinds}")
        if builtin.rule == "test":
            kind = F4 if kind is ANY_FLOAT else kind
        convert = self._conversions.convert
        arguments = tuple(convert(argument, kind, is_written=spelling.precision is not None) for argument in given)
        result: Type = kind
        if builtin.rule == "test":
            result = BOOL
        elif builtin.rule == "reduce" and isinstance(kind, Vector):
            result = kind.element
        return BuiltinCall(at, result, builtin, arguments)

    def _meeting(self, builtin: Builtin, given: tuple[Expression, ...], precision: Scalar | None) -> Type | None:
        """The one type that the arguments get; None where there is none."""
        vectors = [argument.type for argument in given if isinstance(argument.type, Vector)]
        scalars = [argument.type for argument in given if isinstance(argument.type, Scalar)]
        if len(vectors) + len(scalars) != len(given):
            return None
        if vectors:
            kind = vectors[0]
            fits = all(other is kind for other in vectors) and builtin.rule != "test"
            if builtin.name == "cross":
                fits = fits and kind.length == 3
            return kind if fits and (builtin.rule == "number" or kind.element.kind == "float") else None
        if builtin.rule in ("reduce", "direction"):
            return None
        if precision is not None:
            return precision
        found = arithmetic_type(scalars)
        return ANY_FLOAT if builtin.rule != "number" and found.kind != "float" else found

    def _printed(self, argument: Expression) -> Expression:
        return argument if argument.type is TEXT else self._conversions.settled(self._conversions.value(argument))

    def _atomic(self, builtin: Builtin, given: tuple[Expression, ...], at: Place) -> Expression:
        element, *values = given
        if isinstance(element.type, (Array, Buffer)):  # as in C, x is &x[0]
            element = self._expressions.pointers.pointed_at(element, element.at)
        root, kind = _array_of(element), element.type
        if root is None or root.space not in ("buffer", "shared", "parameter"):
            what = "an element of a buffer or of a shared array, such as x[i]"
            return self._error(element.at, f"{builtin.name} takes {what}")
        if kind not in ((I4, U4, F4) if builtin.takes_floats else (I4, U4)):
            allowed = "int, uint or float" if builtin.takes_floats else "int or uint"
            return self._error(element.at, f"{builtin.name} takes an element of type {allowed}, got {kind}")
        if builtin.count > 1 and not self._expressions.assignments.check_writable(root, element.at):
            return invalid(at)
        converted = (self._conversions.convert(value, kind, f"the value of {builtin.name}") for value in values)
        result = VOID if builtin.name == "kk_atomic_store" else kind
        return BuiltinCall(at, result, builtin, (element, *converted))

    def _four(self, builtin: Builtin, given: tuple[Expression, ...], at: Place) -> Expression:
        """kk_load4 and kk_store4."""
        array, index, *value = given
        if isinstance(array, Slice) and not self._expressions.pointers.views.is_other(array):
            index = self._expressions.binary("+", array.offset, index, at)
            array = array.base
        root = root_of(array)
        if not isinstance(array.type, (Array, Buffer)) or array.type.element is not F4 or root is None:
            return self._error(array.at, f"{builtin.name} takes an array of float, got {array.type}")
        index = self._conversions.integer(index, "an index")
        if not value:
            return BuiltinCall(at, _FLOAT4, builtin, (array, index))
        if not self._expressions.assignments.check_writable(root, array.at):
            return invalid(at)
        stored = self._conversions.convert(value[0], _FLOAT4, "the stored value")
        return BuiltinCall(at, VOID, builtin, (array, index, stored))


def _is_own(array: Expression) -> bool:
    """Whether an array, or a part of it, is one that each work-item has for itself."""
    base = array.base if isinstance(array, Slice) else array
    return isinstance(base, Name) and base.variable.space in ("local", "constant")


def _array_of(element: Expression) -> Variable | None:
    """The array that has an element, or a shared variable; None for what is neither, or a part of a vector or a struct."""
    is_element = isinstance(element, Index) or (isinstance(element, Name) and element.variable.space == "shared")
    while isinstance(element, Index) and isinstance(element.base.type, (Array, Buffer)):
        element = element.base
    return element.variable if is_element and isinstance(element, Name) else None
