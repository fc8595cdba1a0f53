"""The value of the condition of an `#if`."""

from __future__ import annotations

from collections.abc import Callable
from operator import add as plus
from operator import and_, eq, ge, gt, le, lshift, lt, mul, ne, or_, rshift, sub, xor

from ..types import literal
from .c_tokens import Token


def _divide(a: int, b: int) -> int:
    if b == 0:
        raise ValueError("division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_OPERATORS: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda a, b: bool(a) or bool(b)), "&&": (2, lambda a, b: bool(a) and bool(b)), "|": (3, or_), "^": (4, xor),
    "&": (5, and_), "==": (6, eq), "!=": (6, ne), "<": (7, lt), ">": (7, gt), "<=": (7, le), ">=": (7, ge),
    "<<": (8, lshift), ">>": (8, rshift), "+": (9, plus), "-": (9, sub), "*": (10, mul), "/": (10, _divide),
    "%": (10, lambda a, b: a - _divide(a, b) * b),
}  # fmt: skip


def evaluate(tokens: list[Token]) -> int:
    """The value of an expression whose macros are expanded. Names are 0, as in C. Raises `ValueError` where it has none."""
    rest = tokens[::-1]
    if not rest:
        raise ValueError("it is empty")
    value = _ternary(rest)
    if rest:
        raise ValueError(f"{rest[-1].text} is not expected there")
    return value


def _ternary(rest: list[Token]) -> int:
    value = _binary(rest, 1)
    if rest and rest[-1].text == "?":
        rest.pop()
        then = _ternary(rest)
        _expect(rest, ":")
        otherwise = _ternary(rest)
        return then if value else otherwise
    return value


def _binary(rest: list[Token], least: int) -> int:
    value = _unary(rest)
    while rest and rest[-1].text in _OPERATORS and _OPERATORS[rest[-1].text][0] >= least:
        strength, operation = _OPERATORS[rest.pop().text]
        other = _binary(rest, strength + 1)
        value = int(operation(value, other))
    return value


def _unary(rest: list[Token]) -> int:
    if not rest:
        raise ValueError("it ends early")
    token = rest.pop()
    if token.text == "(":
        value = _ternary(rest)
        _expect(rest, ")")
        return value
    if token.text in ("-", "+", "!", "~"):
        value = _unary(rest)
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
