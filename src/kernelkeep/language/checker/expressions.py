"""Operators, assignments, elements and fields: each takes checked operands and returns a typed node."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ..builtins import CONSTANTS
from ..problems import Problems, nearest
from ..tree import (
    Assign,
    Binary,
    Comma,
    Expression,
    Field,
    Function,
    Increment,
    Index,
    Literal,
    Logical,
    Name,
    Place,
    Slice,
    Swizzle,
    Ternary,
    Unary,
    Update,
    Variable,
)
from ..types import (
    ANY_FLOAT,
    BOOL,
    F4,
    F8,
    I4,
    I8,
    INVALID,
    U4,
    U8,
    VOID,
    Array,
    Buffer,
    Scalar,
    StructType,
    Type,
    Vector,
    common_scalar,
    common_type,
    literal,
    promoted,
    vector,
)
from .assignments import Assignments
from .constants import binary_value, constant_value, fit
from .conversions import Conversions, invalid
from .scopes import Scopes, View

if TYPE_CHECKING:
    from .pointers import Pointers
    from .views import Views

_COMPARISONS = frozenset(("==", "!=", "<", ">", "<=", ">="))
_INTEGERS_ONLY = frozenset(("%", "&", "|", "^", "<<", ">>"))
_SHIFTS = frozenset(("<<", ">>"))
_INTEGERS = (I4, U4, I8, U8)
_COMPUTES = frozenset((*_INTEGERS, F4, F8))  # what an operator takes as it is, if both operands have it
_OTHER_SPELLINGS = str.maketrans("rgba0123", "xyzwxyzw")
_HALVES = {"lo": {2: "x", 4: "xy"}, "hi": {2: "y", 4: "zw"}, "even": {2: "x", 4: "xz"}, "odd": {2: "y", 4: "yw"}}


class Expressions:
    """Makes typed expressions."""

    def __init__(self, problems: Problems, scopes: Scopes, conversions: Conversions) -> None:
        self._problems = problems
        self._scopes = scopes
        self._conversions = conversions
        self.assignments = Assignments(self, problems, scopes, conversions)
        self.nested_changes = 0  # assignments and increments in the current full expression

    @cached_property
    def pointers(self) -> Pointers:
        """What C writes with pointers. Few bodies have any, so it is imported late."""
        from .pointers import Pointers

        return Pointers(self, self._problems, self._scopes, self._conversions)

    @property
    def views(self) -> Views | None:
        """Arrays that the text sees as another type; None where it has no pointers so far."""
        return self.pointers.views if "pointers" in vars(self) else None

    def full(self, expression: Expression) -> Expression:
        """A whole expression, as it stands in a statement: its type is final, and its order of evaluation is checked."""
        # The most frequent ones, i++ and x = …, change one thing, and last.
        if self.nested_changes > isinstance(expression, (Assign, Update, Increment)):
            from .order import check_order

            check_order(expression, self._problems)
        self.nested_changes = 0
        return self._conversions.settled(expression)

    def _error(self, at: Place, sentence: str) -> Expression:
        self._problems.error(at, sentence)
        return invalid(at)

    # --- leaves

    def number(self, text: str, at: Place) -> Expression:
        """A literal number."""
        found = literal(text)
        return self._error(at, f"{text} is not a number") if found is None else Literal(at, found[1], found[0])

    def name(self, name: str, at: Place) -> Expression:
        """A variable or a constant."""
        found = self._scopes.find(name)
        if isinstance(found, Variable):
            return Name(at, found.type, found)
        if isinstance(found, View):
            if found.array is None:
                return self._error(at, f"pointer {name} is used before it is set to an array or an element")
            array, offset = Name(at, found.array.type, found.array), Name(at, found.offset.type, found.offset)
            return Slice(at, found.type, array, offset)
        if isinstance(found, Function):
            return self._error(at, f"{name} is a function: call it as {name}(…)")
        if name in ("true", "false"):
            return Literal(at, BOOL, name == "true")
        if name in CONSTANTS:
            value, kind = CONSTANTS[name]
            return Literal(at, kind, value)
        from ..hints import unknown_name

        known = unknown_name(name)
        if known is not None:
            self._problems.error_once(at, known)
            return invalid(at)
        return self._error(at, f"unknown name {name}{nearest(name, self._scopes.visible())}")

    # --- operators

    def unary(self, sign: str, operand: Expression, at: Place) -> Expression:
        """`+ - ~ !`."""
        if sign == "!":
            return Unary(at, BOOL, "!", self._conversions.condition(operand))
        operand = self._conversions.promote(self._conversions.value(operand))
        kind = operand.type
        if kind is INVALID:
            return operand
        element = kind.element if isinstance(kind, Vector) else kind
        if not isinstance(element, Scalar) or (sign == "~" and element.kind != "integer"):
            return self._error(at, f"{sign} cannot be applied to {kind}")
        if sign == "+":
            return operand
        if isinstance(operand, Literal) and isinstance(kind, Scalar) and not isinstance(operand.value, str):
            return Literal(at, kind, fit(-operand.value if sign == "-" else ~int(operand.value), kind))
        return Unary(at, kind, sign, operand)  # type: ignore[arg-type]

    def binary(self, sign: str, left: Expression, right: Expression, at: Place) -> Expression:
        """Arithmetic and comparisons."""
        a, b = left.type, right.type
        if sign in ("/", "%") and isinstance(right, Literal) and right.value == 0 and isinstance(right.value, int):
            self._problems.warn(at, f"{sign} by 0: the result is undefined")
        if a is b and a in _COMPUTES and not (sign in _INTEGERS_ONLY and a not in _INTEGERS):
            return Binary(at, BOOL if sign in _COMPARISONS else a, sign, left, right)
        if sign in _SHIFTS:
            return self.shift(sign, left, right, at)
        if isinstance(a, (Array, Buffer)) and isinstance(b, (Array, Buffer)):
            return self.pointers.compared(sign, left, right, at)
        if sign in ("+", "-") and isinstance(a, (Array, Buffer)):
            return self.pointers.moved(sign, left, right, at)
        if sign == "+" and isinstance(b, (Array, Buffer)):
            return self.pointers.moved(sign, right, left, at)
        common = self.common(sign, left, right, at)
        if common is INVALID:
            return invalid(at)
        if sign in _COMPARISONS:
            if not isinstance(common, Scalar):
                return self._error(at, f"{sign} cannot compare {common}: compare its elements, such as .x")
            if a is BOOL and b is BOOL and sign in ("==", "!="):
                common = BOOL
            common = F4 if common is ANY_FLOAT else common
        elif common is ANY_FLOAT and isinstance(left, Literal) and isinstance(right, Literal):
            value = binary_value(sign, left.value, right.value, ANY_FLOAT)
            if value is not None:
                return Literal(left.at, ANY_FLOAT, value)
        left, right = self._conversions.convert(left, common), self._conversions.convert(right, common)
        return Binary(at, BOOL if sign in _COMPARISONS else common, sign, left, right)

    def common(self, sign: str, left: Expression, right: Expression, at: Place) -> Type:
        """The type in which two operands meet, INVALID where they do not."""
        a, b = self._conversions.value(left).type, self._conversions.value(right).type
        if a is INVALID or b is INVALID:
            return INVALID
        common = common_type(a, b)
        if common is None:
            self._problems.error(at, f"{sign} cannot be applied to {a} and {b}")
            return INVALID
        element = common.element if isinstance(common, Vector) else common
        if sign in _INTEGERS_ONLY and isinstance(element, Scalar) and element.kind == "float":
            hint = "; fmod(a, b) is the remainder of floats" if sign == "%" else ""
            self._problems.error(at, f"{sign} takes integers, got {a} and {b}{hint}")
            return INVALID
        return common

    def shift(self, sign: str, left: Expression, right: Expression, at: Place) -> Expression:
        """`<<` and `>>`."""
        if not (isinstance(left.type, Vector) and left.type.element.kind == "integer"):
            left = self._conversions.integer(left, f"the left operand of {sign}")
        right = self._conversions.integer(right, f"the right operand of {sign}")
        if left.type is INVALID or right.type is INVALID:
            return invalid(at)
        return Binary(at, left.type, sign, left, right)

    def logical(self, sign: str, left: Expression, right: Expression, at: Place) -> Expression:
        """`&&` and `||`."""
        left, right = self._conversions.condition(left), self._conversions.condition(right)
        return Logical(at, BOOL, sign, left, right)  # type: ignore[arg-type]

    def ternary(self, condition: Expression, then: Expression, otherwise: Expression, at: Place) -> Expression:
        """`condition ? then : otherwise`."""
        condition = self._conversions.condition(condition)
        a, b = then.type, otherwise.type
        if a is b and (isinstance(a, (Vector, StructType)) or a in _COMPUTES or a is BOOL or a is VOID):
            return Ternary(at, a, condition, then, otherwise)
        common = self.common("?:", then, otherwise, at)
        if common is INVALID:
            return invalid(at)
        convert = self._conversions.convert
        return Ternary(at, common, condition, convert(then, common), convert(otherwise, common))

    def comma(self, first: Expression, last: Expression, at: Place) -> Expression:
        """`first, last`."""
        return Comma(at, last.type, self.unused(first), last)

    def unused(self, expression: Expression) -> Expression:
        """An expression whose value is not used, so that it needs none."""
        if isinstance(expression, Slice) and isinstance(expression.offset, Increment):
            return expression.offset
        if expression.type is not VOID:
            self._conversions.value(expression)
        return self._conversions.settled(expression)

    # --- elements and fields

    def index(self, base: Expression, index: Expression, at: Place) -> Expression:
        """`base[index]`."""
        kind = base.type
        if kind is INVALID:
            return base
        if isinstance(base, Slice):
            return self.pointers.element(base, index, at)
        if not isinstance(kind, (Array, Buffer, Vector)):
            hint = ": compute one index, as in x[row * width + column]" if isinstance(base, Index) else ""
            return self._error(at, f"only arrays have an index, and this is {kind}{hint}")
        if index.type is not I4:
            index = self._conversions.integer(index, "an index")
        if index.type is INVALID:
            return index
        value = None if isinstance(kind, Buffer) else constant_value(index)
        if value is not None and not isinstance(kind, Buffer) and not 0 <= value < kind.length:
            return self._error(index.at, f"index {value} is outside of {kind}: it must be 0 to {kind.length - 1}")
        return Index(at, kind.element, base, index)

    def member(self, base: Expression, name: str, at: Place) -> Expression:
        """`base.name`; `at` is the place of the name."""
        kind = base.type
        if kind is INVALID:
            return base
        if isinstance(kind, StructType):
            found = kind.field(name)
            if found is None:
                return self._error(at, f"{kind} has no field {name}{nearest(name, [own for own, _ in kind.fields])}")
            return Field(base.at, found, base, name)
        if not isinstance(kind, Vector):
            return self._error(at, f"{kind} has no fields")
        elements = _HALVES[name].get(kind.length, "") if name in _HALVES else name
        if elements[:1] in ("s", "S") and elements[1:].isdigit():
            elements = elements[1:]
        elements = elements.translate(_OTHER_SPELLINGS)
        if not 1 <= len(elements) <= 4 or any(one not in "xyzw"[: kind.length] for one in elements):
            return self._error(at, f"{kind} has no element {name}: it has {', '.join('xyzw'[: kind.length])}")
        if len(elements) == 1 and self.views is not None:
            part = self.views.part(base, "xyzw".index(elements))
            if part is not None:
                return part
        found = kind.element if len(elements) == 1 else vector(kind.element, len(elements))
        return Swizzle(base.at, found, base, elements)


def arithmetic_type(kinds: list[Scalar]) -> Scalar:
    """The type in which several numbers meet."""
    found = promoted(kinds[0])
    for kind in kinds[1:]:
        found = common_scalar(found, kind)
    return found
