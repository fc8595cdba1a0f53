"""Pointers, which are arrays from an element on: `x + i`, `&x[i]`, `*p`, `p += 2`.

A pointer stays within one array, so it is an offset: `float* p = x + i;` declares an integer, and `p[j]` is `x[p_at + j]`. What
is left of pointers in a tree is a `Slice` that is the argument of a helper function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..problems import Problems
from ..tree import Expression, Index, Literal, Name, Place, Slice
from ..types import I4, INVALID, Array, Buffer, buffer
from .conversions import Conversions, invalid
from .scopes import Scopes

if TYPE_CHECKING:
    from .expressions import Expressions


class Pointers:
    """Makes elements, slices and offsets of what C writes with pointers."""

    def __init__(self, expressions: Expressions, problems: Problems, scopes: Scopes, conversions: Conversions) -> None:
        self._expressions = expressions
        self._problems = problems
        self._scopes = scopes
        self._conversions = conversions

    def _error(self, at: Place, sentence: str) -> Expression:
        self._problems.error(at, sentence)
        return invalid(at)

    def moved(self, sign: str, array: Expression, by: Expression, at: Place) -> Expression:
        """`array + by`, `array - by`."""
        by = self._conversions.integer(by, f"what is added to {array.type}")
        if by.type is INVALID:
            return by
        if isinstance(array, Slice):
            return Slice(at, array.type, array.base, self._expressions.binary(sign, array.offset, by, at))
        if not isinstance(array, Name) or not isinstance(array.type, Array | Buffer):
            return self._conversions.value(array)
        access = array.type.access if isinstance(array.type, Buffer) else "rw"
        offset = by if sign == "+" else self._expressions.unary("-", by, at)
        return Slice(at, buffer(array.type.element, access), array, offset)

    def address_of(self, operand: Expression, at: Place) -> Expression:
        """`&x[i]`, and `&v` for an argument."""
        if isinstance(operand, Index) and isinstance(operand.base, Name):
            return self.moved("+", operand.base, operand.index, at)
        if isinstance(operand, Name) and not isinstance(operand.type, Array | Buffer):
            self._scopes.function.without_value.discard(operand.variable)  # the function may set it
            return Slice(at, buffer(operand.type, "rw"), operand, Literal(at, I4, 0))
        if operand.type is INVALID:
            return operand
        return self._error(at, "& takes a variable, or an element of an array with one dimension")

    def pointed_at(self, pointer: Expression, at: Place) -> Expression:
        """`*pointer`."""
        if isinstance(pointer.type, Array | Buffer):
            return self._expressions.index(pointer, Literal(at, I4, 0), at)
        if pointer.type is INVALID:
            return pointer
        return self._error(at, f"there are no pointers but those into an array, and this is {pointer.type}")

    def element(self, pointer: Slice, index: Expression, at: Place) -> Expression:
        """`pointer[index]`."""
        if not isinstance(pointer.base.type, Array | Buffer):  # *&v
            return pointer.base
        is_first = isinstance(index, Literal) and index.value == 0
        offset = pointer.offset if is_first else self._expressions.binary("+", pointer.offset, index, at)
        return self._expressions.index(pointer.base, offset, at)

    def assign(self, sign: str, target: Slice, value: Expression, at: Place) -> Expression:
        """`p = q`, `p += 2`: the offset changes."""
        assert isinstance(target.base, Name)
        if sign in ("+=", "-="):
            return self._expressions.assignments.assign(sign, target.offset, value, at)
        base = value.base if isinstance(value, Slice) else value
        if sign != "=" or not isinstance(base, Name) or base.variable is not target.base.variable:
            array = target.base.variable.written
            return self._error(at, f"a pointer stays within one array, and this one points into {array}")
        offset = value.offset if isinstance(value, Slice) else Literal(at, I4, 0)
        return self._expressions.assignments.assign("=", target.offset, offset, at)
