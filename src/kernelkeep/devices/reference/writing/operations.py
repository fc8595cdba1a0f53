"""Arithmetic and conversions on values, as Python text."""

from __future__ import annotations

from collections.abc import Callable

from ....language.tree import Place
from ....language.types import BOOL, F2, F4, F8, Scalar, Type, Vector, limits
from .code import Code, Value, of_type

_COMPARISONS = frozenset(("==", "!=", "<", ">", "<=", ">="))
_EXACT_IN_F4 = 1 << 24


class Operations:
    """Writes operations of one function."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def binary(
        self, sign: str, kind: Type, left: Value, right: Value, at: Place, *, exact: bool = False, raw: bool = False
    ) -> Value:
        """`left sign right`, both of type `kind`; what a shift has on the right is any integer.

        `exact`: an integer is left as it is, without wrapping. `raw`: a float is not rounded, because it is stored at once.
        """
        if isinstance(kind, Vector):
            element = kind.element
            if sign in ("<<", ">>"):  # by one number for all elements
                kept = self._code.keep(right)
                return self._by_element(kind, (left,), lambda parts: self.binary(sign, element, parts[0], kept, at))
            return self._by_element(
                kind, (left, right), lambda parts: self.binary(sign, element, parts[0], parts[1], at)
            )
        assert isinstance(kind, Scalar)
        if sign in _COMPARISONS:
            return Value(f"({left.text} {sign} {right.text})", 0, 1)
        if kind.kind == "float":
            return self._float(sign, kind, left, right, raw)
        if sign in "+-*":
            value = _with_limits(sign, left, right)
            return value if exact else self.wrap(value, kind)
        if sign in ("/", "%"):
            return self._division(sign, kind, left, right, at)
        if sign in ("<<", ">>"):
            bits = 8 * kind.size - 1
            by = right.text if _is_within(right, bits) else f"({right.text} & {bits})"
            if sign == ">>":
                return Value(f"({left.text} >> {by})", *limits(kind))
            return self.wrap(Value(f"({left.text} << {by})"), kind)
        low, high = limits(kind)
        if sign == "&" and right.low is not None and right.high is not None and right.low >= 0:
            low, high = 0, right.high
        return Value(f"({left.text} {sign} {right.text})", low, high)

    def unary(self, sign: str, kind: Type, operand: Value, *, exact: bool = False) -> Value:
        """`-x`, `~x` or `!x`."""
        if isinstance(kind, Vector):
            element = kind.element
            return self._by_element(kind, (operand,), lambda parts: self.unary(sign, element, parts[0]))
        assert isinstance(kind, Scalar)
        if sign == "!":
            return Value(f"(not {operand.text})", 0, 1)
        if kind.kind == "float":
            return Value(f"(-{operand.text})")
        if sign == "~":
            text = f"(~{operand.text})" if kind.signed else f"({operand.text} ^ {limits(kind)[1]})"
            return Value(text, *limits(kind))
        assert operand.low is not None and operand.high is not None
        value = Value(f"(-{operand.text})", -operand.high, -operand.low)
        return value if exact else self.wrap(value, kind)

    def wrap(self, value: Value, kind: Scalar) -> Value:
        """An integer in two's complement."""
        if value.fits(kind):
            return value
        least, most = limits(kind)
        if not kind.signed:
            return Value(f"({value.text} & {most})", least, most)
        # A comparison is cheaper than arithmetic that wraps, and nearly always true.
        name = self._code.new_name()
        self._code.add(f"{name} = {value.text}")
        self._code.add(f"if not {least} <= {name} <= {most}: {name} = wrap_{kind.name}({name})")
        return Value(name, least, most, True)

    def round(self, value: Value, kind: Scalar) -> Value:
        """A float as its type can hold it."""
        if kind is F4:
            self._code.add(f"F[0] = {value.text}")
            name = self._code.new_name()
            self._code.add(f"{name} = F[0]")
            return Value(name, is_fixed=True)
        return Value(f"round_f2({value.text})") if kind is F2 else value

    def convert(self, value: Value, source: Type, target: Type) -> Value:
        """A value as another type."""
        if source is target:
            return value
        if isinstance(target, Vector):
            if isinstance(source, Vector):
                own, other = source.element, target.element
                return self._by_element(target, (value,), lambda parts: self.convert(parts[0], own, other))
            text = self._code.keep(value).text
            return Value(f"({', '.join([text] * target.length)})")
        assert isinstance(source, Scalar) and isinstance(target, Scalar)
        if target is BOOL:
            return Value(f"({value.text} != 0)", 0, 1)
        if target.kind == "integer":
            if source.kind == "float":
                return Value(f"to_{target.name}({value.text})", *limits(target))
            if source is BOOL:
                return Value(f"(+{value.text})", 0, 1)
            return self.wrap(value, target)
        if source.kind == "float":
            return self.round(value, target) if target.size < source.size else value
        small = value.low is not None and value.high is not None and max(-value.low, value.high) <= _EXACT_IN_F4
        if target is F8 or (target is F4 and small):
            return Value(f"float({value.text})")
        return Value(f"int_to_float({value.text}, {target.name!r})")

    # --- parts of these

    def _float(self, sign: str, kind: Scalar, left: Value, right: Value, raw: bool) -> Value:
        if sign == "/":
            left, right = self._code.keep(left), self._code.keep(right)
            value = Value(
                f"({left.text} / {right.text} if {right.text} else float_quotient({left.text}, {right.text}))"
            )
        else:
            value = Value(f"({left.text} {sign} {right.text})")
        return value if raw else self.round(value, kind)

    def _division(self, sign: str, kind: Scalar, left: Value, right: Value, at: Place) -> Value:
        code = self._code
        assert None not in (left.low, left.high, right.low, right.high)
        if right.low <= 0 <= right.high:  # type: ignore[operator]
            right = code.keep(right)
            code.add(f"if not {right.text}: division({code.point(at)}, me)")
        name = "//" if sign == "/" else "%"
        if left.low >= 0 and right.low >= 0:  # type: ignore[operator]
            high = left.high if sign == "/" else right.high
            return Value(f"({left.text} {name} {right.text})", 0, high)
        left, right = code.keep(left), code.keep(right)
        helper = "quotient" if sign == "/" else "remainder"
        a, b = left.text, right.text
        text = f"({a} {name} {b} if {a} >= 0 and {b} > 0 else {helper}({a}, {b}))"
        least, most = limits(kind)
        if sign == "/":
            return self.wrap(Value(text, least, most + 1), kind)  # the least integer divided by -1
        return Value(text, least, most)

    def _by_element(self, kind: Vector, operands: tuple[Value, ...], one: Callable[[list[Value]], Value]) -> Value:
        kept = [self._code.keep(operand) for operand in operands]
        found = []
        for at in range(kind.length):
            # A first result may change no more while the next one is computed.
            found.append(self._code.keep(one([of_type(f"{each.text}[{at}]", kind.element) for each in kept])).text)
        return Value(f"({', '.join(found)})")


def _is_within(value: Value, high: int) -> bool:
    return value.low is not None and value.high is not None and value.low >= 0 and value.high <= high


def _with_limits(sign: str, left: Value, right: Value) -> Value:
    text = f"({left.text} {sign} {right.text})"
    a, b, c, d = left.low, left.high, right.low, right.high
    if a is None or b is None or c is None or d is None:
        return Value(text)
    if sign == "+":
        return Value(text, a + c, b + d)
    if sign == "-":
        return Value(text, a - d, b - c)
    corners = (a * c, a * d, b * c, b * d)
    return Value(text, min(corners), max(corners))
