"""The values of constant expressions: array sizes, cases, indices that can be checked."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from ..tree import Binary, Convert, Expression, Literal, Logical, Name, Ternary, Unary
from ..types import Scalar, converted, rounded, wrapped

Value = bool | int | float


def constant_value(expression: Expression) -> Value | None:
    """The value of an expression that is the same in every run. None where it is not, or where it divides by zero."""
    if isinstance(expression, Literal):
        return None if isinstance(expression.value, str) else expression.value
    if isinstance(expression, Name):
        known = expression.variable.value
        return constant_value(known) if known is not None else None
    if not isinstance(expression.type, Scalar):
        return None
    if isinstance(expression, Convert):
        value = constant_value(expression.operand)
        return None if value is None else converted(value, expression.type)
    if isinstance(expression, Unary):
        value = constant_value(expression.operand)
        if value is None:
            return None
        if expression.operator == "!":
            return not value
        return fit(-value if expression.operator == "-" else ~int(value), expression.type)
    if isinstance(expression, Binary):
        right = constant_value(expression.right)  # first: long sums are deep on their left
        left = None if right is None else constant_value(expression.left)
        return None if left is None else binary_value(expression.operator, left, right, expression.type)
    if isinstance(expression, Logical):
        left, right = constant_value(expression.left), constant_value(expression.right)
        if left is not None and bool(left) == (expression.operator == "||"):
            return bool(left)
        return None if left is None or right is None else bool(right)
    if isinstance(expression, Ternary):
        condition = constant_value(expression.condition)
        return None if condition is None else constant_value(expression.then if condition else expression.otherwise)
    return None


def fit(value: Value, type_: Scalar) -> Value:
    """A result as its type can hold it."""
    if type_.kind == "bool":
        return bool(value)
    return wrapped(int(value), type_) if type_.kind == "integer" else rounded(float(value), type_)


def binary_value(sign: str, left: Any, right: Any, type_: Scalar) -> Value | None:
    """The value of one operation on constants of one type."""
    if sign in ("/", "%"):
        if type_.kind == "float":
            return fit(_float_quotient(float(left), float(right)), type_)
        if right == 0:
            return None
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return fit(quotient if sign == "/" else left - quotient * right, type_)
    if sign in ("<<", ">>"):
        return fit(_OPERATIONS[sign](left, right & (8 * type_.size - 1)), type_)
    try:
        return fit(_OPERATIONS[sign](left, right), type_)
    except OverflowError:
        return None


def _float_quotient(left: float, right: float) -> float:
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
    "<=": operator.le, ">=": operator.ge,
}  # fmt: skip
