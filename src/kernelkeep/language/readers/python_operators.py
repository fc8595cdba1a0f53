"""Python's operators on typed operands, where they mean something else than C's.

/        true division: integers are divided as floats
// %     round down, as in Python: -7 // 2 is -4, and -7 % 2 is 1
**       a product for a constant exponent, else pow
< ==     a signed and an unsigned integer are compared by their values
& | ^    of two bools are a bool
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ..checker.checker import Checker
from ..checker.conversions import invalid
from ..tree import (
    Binary,
    BuiltinCall,
    Convert,
    Expression,
    Literal,
    Logical,
    Name,
    Place,
    Ternary,
    Variable,
    has_effect,
)
from ..types import ANY_FLOAT, BOOL, F4, I4, I8, INVALID, U4, U8, Scalar, Vector
from .python_generated import Generated
from .python_names import fits, integer_literal, with_type_of

_FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow, "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_,
    "|": operator.or_, "^": operator.xor,
}  # fmt: skip
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_BITS = frozenset(("&", "|", "^"))
_MOST_POWER = 64
# What is true of a negative number beside an unsigned one.
_BELOW = frozenset(("<", "<=", "!="))


class Operators:
    """Makes typed operations. `nonnegative` has the variables that are never below 0."""

    def __init__(self, checker: Checker, generated: Generated) -> None:
        self._checker = checker
        self._make = checker.expressions
        self._generated = generated
        self.nonnegative: set[Variable] = set()

    def _error(self, at: Place, sentence: str) -> Expression:
        self._checker.problems.error(at, sentence)
        return invalid(at)

    def binary(self, sign: str, left: Expression, right: Expression, at: Place) -> Expression:
        """`left sign right`."""
        left, right = self._checker.conversions.value(left), self._checker.conversions.value(right)
        if left.type is INVALID or right.type is INVALID:
            return invalid(at)
        folded = self._folded(sign, left, right)
        if folded is not None:
            return folded
        left, right = self._weak(left, right)
        if sign == "/":
            return self._true_division(left, right, at)
        if sign in ("//", "%"):
            return self._floor(sign, left, right, at)
        if sign == "**":
            return self._power(left, right, at)
        if sign in _BITS and left.type is BOOL and right.type is BOOL:
            found = self._make.binary(sign, left, right, at)
            return self._checker.conversions.convert(found, BOOL, is_written=True)
        return self._make.binary(sign, left, right, at)

    def unary(self, sign: str, operand: Expression, at: Place) -> Expression:
        """`-x`, `+x`, `~x`, `not x`."""
        if sign == "~" and operand.type is BOOL:
            return self._error(at, "~ of a bool is an integer that is always true: write not")
        if sign == "-" and isinstance(operand, Literal) and isinstance(operand.value, int) and operand.type is not BOOL:
            return (
                integer_literal(-operand.value, at)
                if operand.type in (I4, I8, U8)
                else self._make.unary("-", operand, at)
            )
        return self._make.unary("!" if sign == "not" else sign, operand, at)

    # --- constants

    def _folded(self, sign: str, left: Expression, right: Expression) -> Expression | None:
        """The value of an operation on two constants, computed as Python does."""
        if not isinstance(left, Literal) or not isinstance(right, Literal):
            return None
        a, b = left.value, right.value
        if isinstance(a, str) or isinstance(b, str) or not {left.type, right.type} <= {I4, I8, U8, BOOL, ANY_FLOAT}:
            return None
        if sign in ("**", "<<") and (abs(b) > _MOST_POWER or (sign == "<<" and b < 0)):
            return None
        try:
            value = _FOLDED[sign](a, b)
        except (ArithmeticError, TypeError, ValueError):
            return None
        if isinstance(value, bool):
            return Literal(left.at, BOOL, value)
        if isinstance(value, float):
            return Literal(left.at, ANY_FLOAT, value)
        return integer_literal(value, left.at) if fits(value, U8) or fits(value, I8) else None

    def _weak(self, left: Expression, right: Expression) -> tuple[Expression, Expression]:
        """An integer literal gets the type of the integer beside it."""
        if isinstance(left, Literal) and isinstance(right.type, Scalar) and right.type.kind == "integer":
            left = with_type_of(left, right.type) if isinstance(left.value, int) else left
        elif isinstance(right, Literal) and isinstance(left.type, Scalar) and left.type.kind == "integer":
            right = with_type_of(right, left.type) if isinstance(right.value, int) else right
        return left, right

    # --- division

    def _true_division(self, left: Expression, right: Expression, at: Place) -> Expression:
        kinds = [one.type for one in (left, right)]
        if any(isinstance(kind, Vector) and kind.element.kind == "integer" for kind in kinds):
            return self._error(at, "/ gives floats, and this is a vector of integers: convert it, as in kk.float4(v)")
        if all(isinstance(kind, Scalar) and kind.kind in ("integer", "bool") for kind in kinds):
            left = self._checker.conversions.convert(left, ANY_FLOAT)
            right = self._checker.conversions.convert(right, ANY_FLOAT)
        return self._make.binary("/", left, right, at)

    def _floor(self, sign: str, left: Expression, right: Expression, at: Place) -> Expression:
        if not isinstance(left.type, Scalar) or not isinstance(right.type, Scalar):
            return self._error(at, f"{sign} takes numbers, got {left.type} and {right.type}")
        kind = self._make.common("+", left, right, at)
        name = "floor_divide" if sign == "//" else "floor_remainder"
        assert isinstance(kind, Scalar)
        convert = self._checker.conversions.convert
        if kind.kind == "float":
            kind = F4 if kind is ANY_FLOAT else kind
            return self._generated.call(name, kind, (convert(left, kind), convert(right, kind)), at)
        if not kind.signed and not all(self.is_nonnegative(one) for one in (left, right)):
            return self._error(
                at, f"{sign} of {left.type} and {right.type} may be wrong below 0: convert one, as in kk.u4(i)"
            )
        is_plain = self.is_nonnegative(left) and self.is_nonnegative(right)
        divisor = right.value if isinstance(right, Literal) and isinstance(right.value, int) else 0
        left, right = convert(left, kind), convert(right, kind)
        if is_plain or not kind.signed:
            return self._make.binary("/" if sign == "//" else "%", left, right, at)
        if divisor > 0 and divisor & (divisor - 1) == 0:  # shifts and masks round down
            if sign == "%":
                return Binary(at, kind, "&", left, Literal(right.at, kind, divisor - 1))
            by = Literal(right.at, I4, divisor.bit_length() - 1)
            return left if divisor == 1 else Binary(at, kind, ">>", left, by)
        if divisor == 0 and isinstance(right, Literal):
            self._checker.problems.warn(at, f"{sign} by 0: the result is undefined")
        return self._generated.call(name, kind, (left, right), at)

    def _power(self, left: Expression, right: Expression, at: Place) -> Expression:
        kind = left.type
        exponent = right.value if isinstance(right, Literal) else None
        if isinstance(kind, Scalar) and isinstance(exponent, int) and 0 <= exponent <= _MOST_POWER:
            left = self._checker.conversions.settled(self._checker.conversions.promote(left))
            assert isinstance(left.type, Scalar)
            if exponent == 1:
                return left
            if exponent == 2 and isinstance(left, Name):
                return self._make.binary("*", left, left, at)
            return self._generated.call(f"power_{exponent}", left.type, (left,), at)
        kinds = [one.type for one in (left, right)]
        if all(isinstance(one, Scalar) and one.kind in ("integer", "bool") for one in kinds):
            return self._error(
                at,
                "** of integers is an integer or a float, as the exponent is: write kk.pow(kk.f4(a), b), or 1 << n for 2 ** n",
            )
        return self._checker.calls.call("pow", [left, right], at)

    # --- comparisons

    def compare(self, sign: str, left: Expression, right: Expression, at: Place) -> Expression:
        """`left sign right`, one of a chain."""
        left, right = self._checker.conversions.value(left), self._checker.conversions.value(right)
        if left.type is INVALID or right.type is INVALID:
            return invalid(at)
        if isinstance(left, Literal) and isinstance(right, Literal):
            return Literal(at, BOOL, bool(_COMPARED[sign](left.value, right.value)))
        left, right = self._weak(left, right)
        a, b = left.type, right.type
        if isinstance(a, Scalar) and isinstance(b, Scalar) and a.kind == b.kind == "integer":
            if not a.signed and a.size >= 4 and self._may_be_negative(right, a):
                return self._by_value(_MIRRORED[sign], right, left, at)
            if not b.signed and b.size >= 4 and self._may_be_negative(left, b):
                return self._by_value(sign, left, right, at)
        return self._make.binary(sign, left, right, at)

    def mixes_signs(self, left: Expression, right: Expression) -> bool:
        """Whether two integers meet as unsigned, and one of them may be below 0."""
        a, b = left.type, right.type
        if not isinstance(a, Scalar) or not isinstance(b, Scalar) or not a.kind == b.kind == "integer":
            return False
        pairs = ((left, b), (right, a))
        return any(not other.signed and other.size >= 4 and self._may_be_negative(one, other) for one, other in pairs)

    def _may_be_negative(self, operand: Expression, beside: Scalar) -> bool:
        kind = operand.type
        assert isinstance(kind, Scalar)
        return kind.signed and kind.size <= beside.size and not self.is_nonnegative(operand)

    def _by_value(self, sign: str, signed: Expression, unsigned: Expression, at: Place) -> Expression:
        """A comparison that C would make of unsigned numbers, where -1 is the largest."""
        if has_effect(signed):
            return self._error(
                at, f"{sign} compares {signed.type} and {unsigned.type}: put {signed.type} into a variable first"
            )
        signed = self._checker.conversions.promote(signed)
        kind = unsigned.type if isinstance(unsigned.type, Scalar) and unsigned.type in (U4, U8) else U4
        as_unsigned = self._checker.conversions.convert(signed, kind, is_written=True)
        zero = Literal(at, signed.type, 0)
        compared = self._make.binary(sign, as_unsigned, unsigned, at)
        if sign in _BELOW:
            return Logical(at, BOOL, "||", Binary(at, BOOL, "<", signed, zero), compared)
        return Logical(at, BOOL, "&&", Binary(at, BOOL, ">=", signed, zero), compared)

    def is_nonnegative(self, e: Expression) -> bool:
        """Whether an integer is certainly never below 0."""
        if isinstance(e.type, Scalar) and (e.type.kind == "bool" or (e.type.kind == "integer" and not e.type.signed)):
            return True
        if isinstance(e, Literal):
            return not isinstance(e.value, str) and e.value >= 0
        if isinstance(e, Name):
            return e.variable in self.nonnegative
        if isinstance(e, BuiltinCall):
            if e.builtin.name in ("min", "max"):
                each = [self.is_nonnegative(one) for one in e.arguments]
                return all(each) if e.builtin.name == "min" else any(each)
            return e.builtin.rule == "position" or (e.builtin.rule == "fixed" and e.type is I4)
        if isinstance(e, Convert):
            source, kind = e.operand.type, e.type
            wider = isinstance(source, Scalar) and isinstance(kind, Scalar) and source.size < kind.size
            return self.is_nonnegative(e.operand) and isinstance(source, Scalar) and (wider or source.signed)
        if isinstance(e, Ternary):
            return self.is_nonnegative(e.then) and self.is_nonnegative(e.otherwise)
        if isinstance(e, Binary):
            left, right = self.is_nonnegative(e.left), self.is_nonnegative(e.right)
            return {"&": left or right, "%": left, ">>": left, "/": left and right, "|": left and right,
                    "^": left and right}.get(e.operator, False)  # fmt: skip
        return False


_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
