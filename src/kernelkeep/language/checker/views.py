"""Arrays that are seen as arrays of another type: `(float4*)x`, `(uint*)pairs`, `&tile[i][j]`.

The element with number k of what is seen has its place in the array: for floats x seen as float4, it is x[4 * k] to
x[4 * k + 3]; for an array of uint2 seen as uint, it is `pairs[k / 2].x` or `.y`; for `float tile[16][17]` seen as float, it is
`tile[k / 17][k % 17]`. Integers of 8 and 16 bits seen as 32 bits, and the other way round, have the lowest bits first.
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
from ..types import F4, I4, INVALID, U1, U2, U4, VOID, Array, Buffer, Scalar, Type, Vector
from .conversions import Conversions, invalid

if TYPE_CHECKING:
    from .expressions import Expressions


_WORDS = (I4, U4)
_UNSIGNED = {1: U1, 2: U2}


def _is_small(kind: Type) -> bool:
    return isinstance(kind, Scalar) and kind.kind == "integer" and kind.size < 4


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
        if _is_small(own) or _is_small(kind):
            return own in _WORDS or kind in _WORDS
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
        if kind.element in _WORDS and _is_small(array.type.element):
            return self._word(array, kind.element, index, at)
        if _is_small(kind.element) and array.type.element in _WORDS:
            return self._part_of_word(array, kind.element, index, at)
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

    def _word(self, array: Name, kind: Type, index: Expression, at: Place) -> Expression:
        """An integer of 32 bits of an array of smaller ones."""
        make, convert = self._expressions.binary, self._conversions.convert
        assert isinstance(array.type, (Array, Buffer)) and isinstance(array.type.element, Scalar)
        size = array.type.element.size
        first = make("*", index, Literal(at, I4, 4 // size), at)
        made: Expression | None = None
        for k in range(4 // size):
            part = convert(convert(self._nth(array, first, k), _UNSIGNED[size], is_written=True), U4, is_written=True)
            if k:
                part = make("<<", part, Literal(at, I4, 8 * size * k), at)
            made = part if made is None else make("|", made, part, at)
        assert made is not None
        made = convert(made, kind, is_written=True)
        self._made[id(made)] = made, array, first
        return made

    def _part_of_word(self, array: Name, kind: Type, index: Expression, at: Place) -> Expression:
        """An integer of 8 or 16 bits of an array of larger ones. It can only be read: others may change its neighbours."""
        make, convert = self._expressions.binary, self._conversions.convert
        assert isinstance(kind, Scalar)
        count = Literal(at, I4, 4 // kind.size)
        word = convert(self._expressions.index(array, make("/", index, count, at), at), U4, is_written=True)
        shift = make("*", make("%", index, count, at), Literal(at, I4, 8 * kind.size), at)
        return convert(make(">>", word, shift, at), kind, is_written=True)

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
        if not self._expressions.assignments.check_writable(array.variable, at):
            return invalid(at)
        value = self._conversions.convert(value, kind, "the assigned value")
        if value.type is INVALID:
            return value
        if isinstance(kind, Vector) and kind.element is F4 and kind.length == 4:
            return BuiltinCall(at, VOID, BUILTINS["kk_store4"].builtin, (array, first, value))
        assert isinstance(array.type, (Array, Buffer)) and isinstance(array.type.element, Scalar)
        own = array.type.element
        if has_effect(value):
            what = f"what is assigned to {kind} in an array of {own}"
            return self._error(value.at, f"{what} must not change anything: use a variable")
        parts = (
            [Swizzle(value.at, own, value, one) for one in "xyzw"[: kind.length]]
            if isinstance(kind, Vector)
            else self._cut(value, own)
        )
        stored: Expression | None = None
        for k, part in enumerate(parts):
            assign = Assign(at, own, self._nth(array, first, k), part)
            stored = assign if stored is None else Comma(at, own, stored, assign)
        assert stored is not None
        return stored

    def _cut(self, value: Expression, kind: Scalar) -> list[Expression]:
        """An integer of 32 bits as smaller ones."""
        word = self._conversions.convert(value, U4, is_written=True)
        bits = (Literal(value.at, I4, 8 * kind.size * k) for k in range(4 // kind.size))
        shifted = (self._expressions.binary(">>", word, by, value.at) if by.value else word for by in bits)
        return [self._conversions.convert(one, kind, is_written=True) for one in shifted]
