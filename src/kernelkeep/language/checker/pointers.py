"""Pointers, which are arrays from an element on: `x + i`, `&x[i]`, `*p`, `p += 2`.

A pointer stays within one array, so it is an offset: `float* p = x + i;` declares an integer, and `p[j]` is `x[p_at + j]`. What
is left of pointers in a tree is a `Slice` that is the argument of a helper function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..problems import Problems
from ..tree import Declare, Expression, Index, Literal, Name, Place, Slice, Variable
from ..types import I4, I8, INVALID, Access, Array, Buffer, Scalar, Type, Vector, buffer
from .conversions import Conversions, invalid
from .scopes import Scopes
from .views import Views, numbers_in

if TYPE_CHECKING:
    from .expressions import Expressions

_COMPARISONS = frozenset(("==", "!=", "<", ">", "<=", ">=", "-"))


class Pointers:
    """Makes elements, slices and offsets of what C writes with pointers."""

    def __init__(self, expressions: Expressions, problems: Problems, scopes: Scopes, conversions: Conversions) -> None:
        self._expressions = expressions
        self._problems = problems
        self._scopes = scopes
        self._conversions = conversions
        self.views = Views(expressions, problems, conversions)

    def _error(self, at: Place, sentence: str) -> Expression:
        self._problems.error(at, sentence)
        return invalid(at)

    # --- values

    def moved(self, sign: str, array: Expression, by: Expression, at: Place) -> Expression:
        """`array + by`, `array - by`."""
        by = self._conversions.integer(by, f"what is added to {array.type}")
        if by.type is INVALID:
            return by
        array = self._decayed(array)
        if isinstance(array, Slice):
            return Slice(at, array.type, array.base, self._expressions.binary(sign, array.offset, by, at))
        if not isinstance(array, Name) or not isinstance(array.type, (Array, Buffer)):
            return self._conversions.value(array)
        offset = by if sign == "+" else self._expressions.unary("-", by, at)
        return Slice(at, buffer(array.type.element, _access(array)), array, offset)

    def address_of(self, operand: Expression, at: Place) -> Expression:
        """`&x[i]`, `&x[i][j]`, and `&v` for an argument."""
        if isinstance(operand, Index) and isinstance(operand.base, Name):
            return self.moved("+", operand.base, operand.index, at)
        if isinstance(operand, Index) and isinstance(operand.base.type, Array):
            return self._flat(operand, at)
        if isinstance(operand, Name) and not isinstance(operand.type, (Array, Buffer)):
            self._scopes.function.without_value.discard(operand.variable)  # the function may set it
            return Slice(at, buffer(operand.type, "rw"), operand, Literal(at, I4, 0))
        if operand.type is INVALID:
            return operand
        return self._error(at, "& takes a variable or an element of an array")

    def _decayed(self, array: Expression) -> Expression:
        """A row of an array with several dimensions as a pointer to its first element; all else as it is."""
        if isinstance(array, Index) and isinstance(array.type, Array):
            return self._flat(self._expressions.index(array, Literal(array.at, I4, 0), array.at), array.at)
        return array

    def _flat(self, element: Expression, at: Place) -> Expression:
        """The address of an element of an array with several dimensions."""
        kind, size = element.type, numbers_in(element.type)
        offset: Expression = Literal(at, I4, 0)
        while isinstance(element, Index) and isinstance(element.base.type, (Array, Buffer)):
            step, index = numbers_in(element.type) // size, element.index
            if not _is_zero(index):
                if step > 1:
                    index = self._expressions.binary("*", index, Literal(at, I4, step), at)
                offset = index if _is_zero(offset) else self._expressions.binary("+", index, offset, at)
            element = element.base
        if not isinstance(element, Name):
            return self._error(at, "& takes a variable or an element of an array")
        return Slice(at, buffer(kind, _access(element)), element, offset)

    def pointed_at(self, pointer: Expression, at: Place) -> Expression:
        """`*pointer`."""
        if isinstance(pointer.type, (Array, Buffer)):
            return self._expressions.index(pointer, Literal(at, I4, 0), at)
        if pointer.type is INVALID:
            return pointer
        return self._error(at, f"there are no pointers but those into an array, and this is {pointer.type}")

    def element(self, pointer: Slice, index: Expression, at: Place) -> Expression:
        """`pointer[index]`."""
        if not isinstance(pointer.base.type, (Array, Buffer)):  # *&v
            return pointer.base
        offset = pointer.offset if _is_zero(index) else self._expressions.binary("+", pointer.offset, index, at)
        if self.views.is_other(pointer):
            return self.views.element(pointer, offset, at)
        return self._expressions.index(pointer.base, offset, at)

    def cast(self, kind: Type, operand: Expression, at: Place) -> Expression:
        """`(float4*)x`: the same array, seen as one of another type."""
        operand = self._decayed(operand)
        if operand.type is INVALID:
            return operand
        if not isinstance(operand.type, (Array, Buffer)):
            return self._error(at, f"only an array can become a pointer, and this is {operand.type}")
        if operand.type.element is kind:
            return operand
        base = operand.base if isinstance(operand, Slice) else operand
        if not isinstance(base, Name) or not self.views.can_be_seen(base.type, kind):
            why = (
                "a cast of a pointer goes from numbers to vectors of these, or from small integers to 32 bits, and back"
            )
            return self._error(at, f"{operand.type.element}* cannot become {kind}*: {why}")
        offset: Expression = operand.offset if isinstance(operand, Slice) else Literal(at, I4, 0)
        before, after = _bytes(operand.type.element), _bytes(kind)
        if _is_zero(offset):
            pass
        elif before > after:
            offset = self._expressions.binary("*", offset, Literal(at, I4, before // after), at)
        elif before < after:
            offset = self._expressions.binary("/", offset, Literal(at, I4, after // before), at)
        return Slice(at, buffer(kind, _access(operand)), base, offset)

    def compared(self, sign: str, left: Expression, right: Expression, at: Place) -> Expression:
        """`p < q`, `p - q`: their offsets are compared."""
        found = []
        for one in (self._decayed(left), self._decayed(right)):
            base = one.base if isinstance(one, Slice) else one
            offset: Expression = one.offset if isinstance(one, Slice) else Literal(at, I4, 0)
            found.append((base.variable if isinstance(base, Name) else None, one.type, offset))
        (array, kind, from_left), (other, other_kind, from_right) = found
        if (
            sign not in _COMPARISONS
            or array is None
            or array is not other
            or _element(kind) is not _element(other_kind)
        ):
            return self._error(at, f"{sign} takes pointers into one array only: write it with indices")
        return self._expressions.binary(sign, from_left, from_right, at)

    # --- variables

    def declare(self, name: str, element: Type, value: Expression, at: Place, *, is_const: bool) -> Declare:
        """`float* p = x + i;`: the variable with its offset."""
        found = self._array_and_offset(name, element, value)
        if found is None:
            return Declare(at, self._scopes.declare(name, INVALID, "local", at))
        array, offset, access = found
        wide = isinstance(offset.type, Scalar) and offset.type.size == 8
        return self.view(name, array, offset, buffer(element, "r" if is_const else access), I8 if wide else I4, at)

    def view(self, name: str, of: Variable, offset: Expression, kind: Buffer, offset_type: Type, at: Place) -> Declare:
        """Make a name mean a pointer that begins at an offset."""
        value = self._conversions.convert(offset, offset_type, is_written=True)
        variable = self._scopes.declare_view(name, of, offset_type, kind, at)
        self._scopes.function.values[variable] = [value]
        return Declare(at, variable, value)

    def declare_unset(self, name: str, element: Type, at: Place, *, is_const: bool) -> Declare:
        """`float* p;`: the first assignment to p, in the order of the text, says which array it points into."""
        offset = self._scopes.declare_view(name, None, I4, buffer(element, "r" if is_const else "rw"), at)
        self._scopes.function.without_value.add(offset)
        return Declare(at, offset, None)

    def first_set(self, name: str, value: Expression, at: Place) -> Expression:
        """The first assignment to a pointer that was declared without a value."""
        view = self._scopes.unset_pointer(name)
        assert view is not None
        found = self._array_and_offset(name, view.type.element, value)
        if found is None:
            return invalid(at)
        array, offset, access = found
        kind = view.type if view.type.access == "r" else buffer(view.type.element, access)
        variable = self._scopes.set_view(name, array, kind)
        offset = self._conversions.convert(offset, variable.type, is_written=True)
        return self._expressions.assignments.assign("=", Name(at, variable.type, variable), offset, at)

    def _array_and_offset(
        self, name: str, element: Type, value: Expression
    ) -> tuple[Variable, Expression, Access] | None:
        """What a pointer is set to: an array, from which element on, and what may be done to it. Reports what is none."""
        value = self._decayed(value)
        base = value.base if isinstance(value, Slice) else value
        if (
            not isinstance(base, Name)
            or not isinstance(base.type, (Array, Buffer))
            or _element(value.type) is not element
        ):
            if isinstance(base, Name) and base.type is not INVALID and not isinstance(base.type, (Array, Buffer)):
                what = f"{base.variable.written} is no array"
                self._problems.error(value.at, f"a pointer is set to an array: {what}")
            elif value.type is not INVALID:
                self._problems.error(value.at, f"{name} must be set to an array of {element}, got {value.type}")
            return None
        offset = value.offset if isinstance(value, Slice) else Literal(value.at, I4, 0)
        return base.variable, offset, _access(value)

    def assign(self, sign: str, target: Slice, value: Expression, at: Place) -> Expression:
        """`p = q`, `p += 2`: the offset changes."""
        assert isinstance(target.base, Name)
        if sign in ("+=", "-="):
            return self._expressions.assignments.assign(sign, target.offset, value, at)
        value = self._decayed(value)
        base = value.base if isinstance(value, Slice) else value
        if sign != "=" or not isinstance(base, Name) or base.variable is not target.base.variable:
            array = target.base.variable.written
            return self._error(at, f"a pointer stays within one array, and this one points into {array}")
        if _element(value.type) is not _element(target.type):
            return self._error(at, f"this is a pointer to {_element(target.type)}, not to {_element(value.type)}")
        offset = value.offset if isinstance(value, Slice) else Literal(at, I4, 0)
        return self._expressions.assignments.assign("=", target.offset, offset, at)


def _is_zero(expression: Expression) -> bool:
    """Whether it is a literal 0."""
    return isinstance(expression, Literal) and expression.value == 0


def _bytes(kind: Type) -> int:
    """The size of what a pointer points to."""
    while isinstance(kind, Array):
        kind = kind.element
    return kind.length * kind.element.size if isinstance(kind, Vector) else kind.size if isinstance(kind, Scalar) else 1


def _element(kind: Type) -> Type | None:
    return kind.element if isinstance(kind, (Array, Buffer)) else None


def _access(array: Expression) -> Access:
    """What may be done to an array, or to what a pointer points to: "rw" or "r"."""
    return "r" if isinstance(array.type, Buffer) and array.type.access == "r" else "rw"
