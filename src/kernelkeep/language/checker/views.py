"""Arrays that are seen as arrays of another type: `(float4*)x`, `(uint*)pairs`, `&tile[i][j]`.

The element with number k of what is seen has its place in the array: for floats x seen as float4, it is x[4 * k] to
x[4 * k + 3]; for an array of uint2 seen as uint, it is `pairs[k / 2].x` or `.y`; for `float tile[16][17]` seen as float, it is
`tile[k / 17][k % 17]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..builtins import BUILTINS
from ..problems import Problems
from ..tree import (
    Assign,
    BuiltinCall,
    Comma,
    Construct,
    Expression,
    Index,
    Literal,
    Name,
    Place,
    Slice,
    Swizzle,
    has_effect,
)
from ..types import F4, I4, INVALID, VOID, Array, Buffer, Scalar, Type, Vector
from .conversions import Conversions, invalid

if TYPE_CHECKING:
    from .expressions import Expressions


def numbers_in(kind: Type) -> int:
    """How many numbers an element has; 1 for what is not made of numbers only."""
    if isinstance(kind, Array):
        return kind.length * numbers_in(kind.element)
    return kind.length if isinstance(kind, Vector) else 1


class Views:
    """Finds the elements of arrays that are seen as another type."""

    def __init__(self, expressions: Expressions, problems: Problems, conversions: Conversions) -> None:
        self._expressions = expressions
        self._problems = problems
        self._conversions = conversions
        # Vectors that were made of the numbers of an array: each with that array and the index of its first number.
        self._made: dict[int, tuple[Expression, Name, Expression]] = {}

    def _error(self, at: Place, sentence: str) -> Expression:
        self._problems.error(at, sentence)
        return invalid(at)

    def can_be_seen(self, array: Type, kind: Type) -> bool:
        """Whether an array can be seen as one of another type."""
        own = array.element if isinstance(array, (Array, Buffer)) else INVALID
        if isinstance(own, Scalar) and isinstance(kind, Vector):
            return own is kind.element and kind.length != 3
        while isinstance(own, Array):
            own = own.element
        return own is kind or (isinstance(own, Vector) and own.element is kind and own.length != 3)

    def is_other(self, pointer: Slice) -> bool:
        """Whether what a pointer points to is not an element of the array as it was declared."""
        kind, array = pointer.type, pointer.base.type
        if not isinstance(kind, Buffer) or not isinstance(array, (Array, Buffer)):
            return False
        return kind.element is not array.element

    def element(self, pointer: Slice, index: Expression, at: Place) -> Expression:
        """The element with that number of what the pointer shows."""
        kind, array = pointer.type, pointer.base
        assert isinstance(kind, Buffer) and isinstance(array, Name) and isinstance(array.type, (Array, Buffer))
        index = self._conversions.integer(index, "an index")
        if index.type is INVALID:
            return index
        if has_effect(index):
            what = f"the index of {kind.element} in an array of {array.type.element}"
            return self._error(at, f"{what} must not change anything: use a variable")
        if isinstance(kind.element, Vector):
            return self._vector(array, kind.element, index, at)
        return self._number(array, index, at)

    def _number(self, array: Expression, index: Expression, at: Place) -> Expression:
        """A number of an array of vectors or of arrays."""
        expressions = self._expressions
        kind = array.type
        assert isinstance(kind, (Array, Buffer, Vector))
        each = numbers_in(kind.element)
        if each == 1:
            return expressions.index(array, index, at)
        row = expressions.index(array, expressions.binary("/", index, Literal(at, I4, each), at), at)
        return self._number(row, expressions.binary("%", index, Literal(at, I4, each), at), at)

    def _vector(self, array: Name, kind: Vector, index: Expression, at: Place) -> Expression:
        """A vector of an array of numbers."""
        expressions = self._expressions
        first = expressions.binary("*", index, Literal(at, I4, kind.length), at)
        made: Expression
        if kind.element is F4 and kind.length == 4:
            made = BuiltinCall(at, kind, BUILTINS["kk_load4"].builtin, (array, first))
        else:
            made = Construct(at, kind, tuple(self._nth(array, first, k) for k in range(kind.length)))
        self._made[id(made)] = made, array, first  # `made` is kept, so that no other gets its id
        return made

    def _nth(self, array: Name, first: Expression, k: int) -> Expression:
        index = first if k == 0 else self._expressions.binary("+", first, Literal(first.at, I4, k), first.at)
        assert isinstance(array.type, (Array, Buffer))
        return Index(array.at, array.type.element, array, index)

    # --- what is done with such a vector

    def is_made(self, expression: Expression) -> bool:
        """Whether it is a vector that was made of the numbers of an array."""
        return id(expression) in self._made

    def part(self, expression: Expression, k: int) -> Expression | None:
        """The number of the array that is element k of such a vector; None for other expressions."""
        found = self._made.get(id(expression))
        return None if found is None else self._nth(found[1], found[2], k)

    def store(self, target: Expression, value: Expression, at: Place) -> Expression:
        """`target = value`."""
        _, array, first = self._made[id(target)]
        kind = target.type
        assert isinstance(kind, Vector)
        if not self._expressions.assignments.check_writable(array.variable, at):
            return invalid(at)
        value = self._conversions.convert(value, kind, "the assigned value")
        if value.type is INVALID:
            return value
        if kind.element is F4 and kind.length == 4:
            return BuiltinCall(at, VOID, BUILTINS["kk_store4"].builtin, (array, first, value))
        if has_effect(value):
            what = f"what is assigned to {kind} in an array of {kind.element}"
            return self._error(value.at, f"{what} must not change anything: use a variable")
        stored: Expression | None = None
        for k, one in enumerate("xyzw"[: kind.length]):
            part = Swizzle(value.at, kind.element, value, one)
            assign = Assign(at, kind.element, self._nth(array, first, k), part)
            stored = assign if stored is None else Comma(at, kind.element, stored, assign)
        assert stored is not None
        return stored
