"""Constants: their values, and their digits."""

from __future__ import annotations

from ..checker.constants import binary_value, constant_value
from ..tree import NOWHERE, Binary, Comma, Convert, Expression, Literal, Ternary, Unary, has_effect
from ..types import BOOL, F4, F8, I4, I8, U4, U8, Scalar, Type, rounded, wrapped

INTEGERS = (I4, U4, I8, U8)


def folded(e: Expression) -> int | None:
    """The value of an integer expression of numbers: macros leave many of them."""
    kind = e.type
    if isinstance(e, Literal):
        return int(e.value) if kind in INTEGERS or kind is BOOL else None
    if isinstance(e, Convert) and kind in INTEGERS and e.operand.type in INTEGERS:
        value = folded(e.operand)
        return None if value is None else wrapped(value, kind)
    if isinstance(e, Unary) and kind in INTEGERS:
        value = folded(e.operand)
        return None if value is None else wrapped(-value if e.operator == "-" else ~value, kind)
    if isinstance(e, Binary) and kind in INTEGERS:
        right = folded(e.right)  # first: long sums are deep on their left
        left = None if right is None else folded(e.left)
        return None if left is None else binary_value(e.operator, left, right, kind)  # type: ignore[return-value]
    if isinstance(e, Ternary) and kind in INTEGERS:
        condition = constant_value(e.condition)
        return None if condition is None else folded(e.then if condition else e.otherwise)
    if isinstance(e, Comma) and not has_effect(e.first):
        return folded(e.last)
    return None


def literal(value: int, kind: Type = I4) -> Literal:
    """An integer constant that is not in the user's text."""
    return Literal(NOWHERE, kind, value)


def float_digits(value: float, kind: Scalar) -> str:
    """The shortest decimal number that is exactly this value in its type."""
    if kind is F8:
        text = repr(value)
    else:
        for digits in range(6, 10):
            text = f"{value:.{digits}g}"
            if rounded(float(text), F4) == value:
                break
    if "e" in text:
        mantissa, power = text.split("e")
        text = f"{int(value)}" if 0 < int(power) < 10 else f"{mantissa}e{int(power)}"
    return text if "." in text or "e" in text else f"{text}.0"
