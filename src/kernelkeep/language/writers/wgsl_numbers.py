"""Numbers in WGSL: their types, constants, conversions and operators."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from ..checker.constants import constant_value
from ..tree import Binary, Expression, Literal, Unary, Update
from ..types import BOOL, F2, F4, I1, I2, I4, U1, U2, U4, Array, Scalar, Type, Vector, wrapped
from .numbers import folded, literal
from .small_values import is_small
from .texts import ASSIGNMENT, EQUALITY, LEVELS, PRIMARY, RELATION, SHIFT, SUM, UNARY, Text, converted
from .wgsl_constants import WgslConstants, is_constant
from .wgsl_functions import TO_INTEGER


class WgslNumbers(WgslConstants):
    """Writes constants, conversions and operators."""

    types: ClassVar[Mapping[Scalar, str]] = {
        BOOL: "bool", I1: "i32", U1: "i32", I2: "i32", U2: "i32", I4: "i32", U4: "u32", F2: "f32", F4: "f32",
    }  # fmt: skip
    float_suffix = "f"

    def type_name(self, kind: Type) -> str:
        if isinstance(kind, Array):
            return f"array<{self.type_name(kind.element)}, {kind.length}>"
        return super().type_name(kind)

    def vector_name(self, kind: Vector) -> str:
        return f"vec{kind.length}<{self.type_name(kind.element)}>"

    def needed(self, operator: str, operand: Expression, level: int) -> int:
        return SUM if LEVELS[operator] in (RELATION, EQUALITY) else super().needed(operator, operand, level)

    def list_of(self, expressions: tuple[Expression, ...]) -> str:
        texts = [self.x(one, SHIFT + 1 if isinstance(one, Binary) else ASSIGNMENT) for one in expressions]
        if texts and all(one.type is I4 and folded(one) is not None for one in expressions):
            texts[0] += "i" if texts[0][-1].isdigit() else ""  # else the call is of no type in particular
        return ", ".join(texts)

    def integer(self, value: int, kind: Scalar) -> Text:
        if kind.size == 8:
            raise self.unsupported(*self.lacking(kind))
        if kind is I4 and value == -(1 << 31):
            return "i32(-2147483648)", PRIMARY
        return f"{value}{'u' if kind is U4 else ''}", PRIMARY if value >= 0 else UNARY

    def not_finite(self, value: float, kind: Scalar) -> Text:
        # A constant that is not finite is refused, so the bits are in a variable.
        bits = "7fc00000" if math.isnan(value) else "ff800000" if value < 0 else "7f800000"
        name = "kk_nan" if math.isnan(value) else "kk_minus_infinity" if value < 0 else "kk_infinity"
        body = f"    var bits = 0x{bits}u;\n    return bitcast<f32>(bits);"
        return f"{self.helper(name, f'fn {name}() -> f32 {{{chr(10)}{body}{chr(10)}}}')}()", PRIMARY

    def round_to_half(self, text: str) -> Text:
        body = "{ return unpack2x16float(pack2x16float(vec2<f32>(x, 0.0f))).x; }"
        return f"{self.helper('kk_round_to_half', f'fn kk_round_to_half(x: f32) -> f32 {body}')}({text})", PRIMARY

    def cast(self, operand: Expression, target: Scalar) -> Text:
        source = operand.type
        assert isinstance(source, Scalar)
        if is_small(target):
            if self.is_within(operand, target):
                return self.x(converted(operand, I4), PRIMARY), PRIMARY
            bits = 8 * target.size
            if target.signed:
                return f"extractBits({self.x(converted(operand, I4))}, 0u, {bits}u)", PRIMARY
            return self.infix("&", converted(operand, I4), Literal(operand.at, I4, (1 << bits) - 1))
        if self.type_name(source) == self.type_name(target):
            return self.x(operand, PRIMARY), PRIMARY
        text = self.x(operand)
        if source.kind == target.kind == "integer" and text.lstrip("-").isdigit():  # else it has no type in particular
            return self.integer(wrapped(int(text), target), target)
        return f"{self.type_name(target)}({text})", PRIMARY

    def truncation(self, source: Scalar, target: Scalar) -> str:
        if target.size == 8:
            raise self.unsupported(*self.lacking(target))
        name = "kk_to_i32" if target is I4 else "kk_to_u32"
        return self.helper(name, TO_INTEGER[name])

    def signature(self, name: str, result: str, parameters: dict[str, str]) -> str:
        return f"fn {name}({', '.join(f'{one}: {kind}' for one, kind in parameters.items())}) -> {result}"

    def unary(self, e: Unary) -> Text:
        element = e.type.element if isinstance(e.type, Vector) else e.type
        if e.operator == "-" and element is U4:
            zero = converted(literal(0, U4), e.type)
            return self.infix("-", zero, e.operand)
        return super().unary(e)

    def binary(self, e: Binary) -> Text:
        value = constant_value(e)
        return super().binary(e) if value is None else self.number(value, e.type)

    def infix(self, operator: str, left: Expression, right: Expression) -> Text:
        if operator == "!=" and left.type in (F2, F4):  # naga takes `NaN != x` for false
            return f"!({super().infix('==', left, right)[0]})", UNARY
        return super().infix(operator, left, right)

    def shift(self, e: Binary) -> Text:
        amount = self.shift_amount(e.right, e.type)
        left = self.at_run_time(e.left) if is_constant(e.left) and is_constant(amount) else self.x(e.left, UNARY)
        return f"{left} {e.operator} {self._amount(amount, e.type)}", LEVELS[e.operator]

    def _amount(self, amount: Expression, kind: Type) -> str:
        if isinstance(amount, Literal):
            text = f"{int(amount.value)}u"
        elif isinstance(amount.type, Vector):
            return f"vec{amount.type.length}<u32>({self.x(amount)})"
        else:
            text = self.x(amount, UNARY) if amount.type is U4 else f"u32({self.x(amount)})"
        return f"vec{kind.length}<u32>({text})" if isinstance(kind, Vector) else text

    def update_operand(self, e: Update) -> str:
        if e.operator in ("<<", ">>"):
            return self._amount(self.shift_amount(e.value, e.computed), e.computed)
        return super().update_operand(e)
