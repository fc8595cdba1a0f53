"""The value of the condition of an `#if`."""

from __future__ import annotations

from collections.abc import Callable
from operator import add as plus
from operator import and_, eq, ge, gt, le, lt, mul, ne, or_, sub, xor

from ..types import literal
from .c_tokens import Token


def _divide(a: int, b: int) -> int | None:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else None


def _remainder(a: int, b: int) -> int | None:
    return (abs(a) % abs(b)) * (-1 if a < 0 else 1) if b else None


# Their strength, and the value, which is None for a division by zero.
_OPERATORS: dict[str, tuple[int, Callable[[int, int], int | None]]] = {
    "||": (1, or_), "&&": (2, and_), "|": (3, or_), "^": (4, xor), "&": (5, and_), "==": (6, eq), "!=": (6, ne),
    "<": (7, lt), ">": (7, gt), "<=": (7, le), ">=": (7, ge),
    "<<": (8, lambda a, b: a << (b & 63)), ">>": (8, lambda a, b: a >> (b & 63)),
    "+": (9, plus), "-": (9, sub), "*": (10, mul), "/": (10, _divide), "%": (10, _remainder),
}  # fmt: skip


def evaluate(tokens: list[Token]) -> int:
    """The value of an expression whose macros are expanded. Names are 0, as in C. Raises `ValueError` where it has none."""
    rest = tokens[::-1]
    if not rest:
        raise ValueError("it is empty")
    value = _ternary(rest)
    if rest:
        raise ValueError(f"{rest[-1].text} is not expected there")
    if value is None:
        raise ValueError("division by zero")
    return value


def _ternary(rest: list[Token]) -> int | None:
    value = _binary(rest, 1)
    if rest and rest[-1].text == "?":
        rest.pop()
        then = _ternary(rest)
        _expect(rest, ":")
        otherwise = _ternary(rest)
        return None if value is None else then if value else otherwise
    return value


def _binary(rest: list[Token], least: int) -> int | None:
    value = _unary(rest)
    while rest and rest[-1].text in _OPERATORS and _OPERATORS[rest[-1].text][0] >= least:
        sign = rest.pop().text
        strength, operation = _OPERATORS[sign]
        other = _binary(rest, strength + 1)
        if strength <= 2 and value is not None:
            value = int(value != 0)
            if value == (sign == "||"):  # the right operand does not matter, whatever it is
                continue
            other = None if other is None else int(other != 0)
        found = None if value is None or other is None else operation(value, other)
        value = None if found is None else _in_64_bits(int(found))
    return value


def _in_64_bits(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _unary(rest: list[Token]) -> int | None:
    if not rest:
        raise ValueError("it ends early")
    token = rest.pop()
    if token.text == "(":
        value = _ternary(rest)
        _expect(rest, ")")
        return value
    if token.text in ("-", "+", "!", "~"):
        if (value := _unary(rest)) is None:
            return None
        return {"-": -value, "+": value, "!": int(not value), "~": ~value}[token.text]
    if token.kind == "name":
        return int(token.text == "true")
    number = literal(token.text) if token.kind == "number" else None
    if number is None or isinstance(number[0], float):
        raise ValueError(f"{token.text} is no integer")
    return int(number[0])


def _expect(rest: list[Token], sign: str) -> None:
    if not rest or rest.pop().text != sign:
        raise ValueError(f"{sign} is missing")
