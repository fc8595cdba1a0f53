"""Variables, array sizes and initialisers."""

from __future__ import annotations

from msgspec import Struct

from ..problems import Problems
from ..tree import Construct, Declare, Expression, Literal, Place, Variable
from ..types import INVALID, VOID, Array, Buffer, Scalar, StructType, Type, Vector, array
from .constants import constant_value
from .conversions import Conversions, invalid
from .scopes import Scopes, Space

_MOST_ELEMENTS = 1 << 24


class InitialiserList(Struct, frozen=True, eq=False):
    """`{1, .x = 2, [3] = {4}}`. Each item has the field or index that is written before it, or None."""

    at: Place
    items: tuple[tuple[str | int | None, Expression | InitialiserList], ...]


class _Cursor:
    """The items of a list that are still to be used."""

    def __init__(self, items: tuple[tuple[str | int | None, Expression | InitialiserList], ...]) -> None:
        self.items = items
        self.at = 0

    @property
    def is_done(self) -> bool:
        return self.at >= len(self.items)


class Declarations:
    """Makes variables and their first values."""

    def __init__(self, problems: Problems, scopes: Scopes, conversions: Conversions) -> None:
        self._problems = problems
        self._scopes = scopes
        self._conversions = conversions

    def length(self, size: Expression, least: int = 1) -> int:
        """The length of an array. It is 1 where the size is no positive constant, which is reported."""
        value = constant_value(size)
        if size.type is INVALID:
            return 1
        if value is None:
            self._problems.error(size.at, "the size of an array must be a constant")
        elif isinstance(value, float) or not least <= value <= _MOST_ELEMENTS:
            self._problems.error(size.at, f"the size of an array must be a positive integer, got {value}")
        else:
            return int(value)
        return 1

    def integer_constant(self, expression: Expression, what: str) -> int:
        """The value of a constant. It is 0 where there is none, which is reported."""
        value = constant_value(expression)
        if expression.type is not INVALID and (value is None or isinstance(value, float)):
            self._problems.error(expression.at, f"{what} must be an integer constant")
        return 0 if value is None else int(value)

    def array(self, element: Type, lengths: list[int]) -> Type:
        """`element name[lengths]…`."""
        for length in reversed(lengths):
            element = array(element, length)
        return element

    def check_size(self, kind: Type, at: Place) -> None:
        """Report an array, or a struct with arrays, that is too large for any device."""
        if _count(kind) > _MOST_ELEMENTS:
            self._problems.error(at, f"{kind} has more than {_MOST_ELEMENTS} elements")

    def declare(
        self,
        name: str,
        kind: Type,
        space: Space,
        at: Place,
        initial: Expression | InitialiserList | None = None,
        *,
        is_const: bool = False,
    ) -> Declare:
        """A variable with its first value. The value was read before the name means the variable."""
        if _innermost(kind) is VOID:
            self._problems.error(at, f"{name} must have a type other than void")
            kind = INVALID
        self.check_size(kind, at)
        value = None if initial is None else self.initial(kind, initial, f"the first value of {name}")
        known = None
        if is_const:
            if value is None:
                self._problems.error(at, f"{name} is const and must have a value")
            elif isinstance(kind, Scalar) and (number := constant_value(value)) is not None:
                known = Literal(value.at, kind, number)
        variable = self._scopes.declare(name, kind, space, at, is_const=is_const, value=known)
        if value is None:
            self._scopes.function.without_value.add(variable)
        else:
            self._scopes.function.values[variable] = [value]
        return Declare(at, variable, value)

    def shared(self, name: str, element: Type, lengths: list[int], at: Place) -> Declare:
        """A variable that the group shares: an array, or without lengths a single value."""
        if not isinstance(element, (Scalar, Vector, StructType)) or element is VOID:
            self._problems.error(at, f"what a group shares cannot be of type {element}")
        kind = self.array(element, lengths)
        self.check_size(kind, at)
        return Declare(at, self._scopes.declare(name, kind, "shared", at))

    def parameter(self, name: str, kind: Type, at: Place, *, is_const: bool, is_restrict: bool = False) -> Variable:
        """A parameter of a helper function."""
        if kind is VOID:
            self._problems.error(at, f"parameter {name} must have a type other than void")
        return self._scopes.declare(name, kind, "parameter", at, is_const=is_const, is_restrict=is_restrict)

    # --- initialisers

    def initial(self, kind: Type, initial: Expression | InitialiserList, what: str) -> Expression:
        """A first value of exactly the type."""
        if isinstance(initial, Expression):
            if isinstance(kind, (Array, Buffer)):
                if initial.type is not INVALID:
                    self._problems.error(initial.at, f"{what} must be a list in braces, as it is an array")
                return invalid(initial.at)
            return self._conversions.convert(initial, kind, what)
        if isinstance(kind, Scalar):
            if len(initial.items) != 1 or initial.items[0][0] is not None:
                if kind is not INVALID:
                    self._problems.error(initial.at, f"{what} must be one {kind}, got {len(initial.items)} elements")
                return invalid(initial.at)
            return self.initial(kind, initial.items[0][1], what)
        cursor = _Cursor(initial.items)
        value = self._aggregate(kind, cursor, initial.at, what, owns_braces=True)
        if not cursor.is_done and value.type is not INVALID:
            self._problems.error(cursor.items[cursor.at][1].at, f"{what} has more elements than {kind}")
        return value

    def _aggregate(self, kind: Type, cursor: _Cursor, at: Place, what: str, *, owns_braces: bool) -> Expression:
        """A vector, array or struct from the next items. As in C, inner braces may be left out."""
        names, kinds = _parts(kind)
        values: dict[int, Expression] = {}
        position = 0
        while not cursor.is_done:
            designator, item = cursor.items[cursor.at]
            if designator is not None:
                if not owns_braces:
                    break
                position = names.index(designator) if designator in names else len(kinds)
                if position == len(kinds):
                    self._problems.error(item.at, f"{kind} has no {designator}")
                    return invalid(at)
            if position >= len(kinds):
                break
            part = kinds[position]
            if isinstance(item, Expression) and _is_aggregate(part) and item.type is not part:
                values[position] = self._aggregate(part, cursor, item.at, what, owns_braces=False)
            else:
                cursor.at += 1
                values[position] = self.initial(part, item, what)
            position += 1
        zeros: dict[Type, Expression] = {}
        arguments = []
        for position, part in enumerate(kinds):
            if position not in values and part not in zeros:
                zeros[part] = _zero(part, at)
            arguments.append(values[position] if position in values else zeros[part])
        return Construct(at, kind, tuple(arguments))


def _parts(kind: Type) -> tuple[list[str | int], list[Type]]:
    """What a type consists of: the names or indices, and the types."""
    if isinstance(kind, StructType):
        return [name for name, _ in kind.fields], [part for _, part in kind.fields]
    if isinstance(kind, (Vector, Array)):
        return list(range(kind.length)), [kind.element] * kind.length
    return [], []


def _innermost(kind: Type) -> Type:
    while isinstance(kind, Array):
        kind = kind.element
    return kind


def _count(kind: Type) -> int:
    """The numbers in a type."""
    if isinstance(kind, Array):
        return kind.length * _count(kind.element)
    return sum(_count(part) for _, part in kind.fields) if isinstance(kind, StructType) else 1


def _is_aggregate(kind: Type) -> bool:
    return isinstance(kind, (Vector, Array, StructType))


def _zero(kind: Type, at: Place) -> Expression:
    if isinstance(kind, Scalar):
        return Literal(at, kind, False if kind.kind == "bool" else 0.0 if kind.kind == "float" else 0)
    parts = {part: _zero(part, at) for part in _parts(kind)[1]}  # one node for all elements that are alike
    return Construct(at, kind, tuple(parts[part] for part in _parts(kind)[1]))
