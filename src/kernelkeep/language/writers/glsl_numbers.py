"""Numbers in GLSL: their types, constants and conversions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from ..tree import Construct, Expression, Literal
from ..types import BOOL, F2, F4, F8, I1, I2, I4, I8, U1, U2, U4, U8, Scalar, Vector
from .bindings import BindingWriter
from .small_values import is_small
from .texts import PRIMARY, SUM, UNARY, Text, converted

_TO_INTEGER = {
    I4: "int kk_to_int({0} x) {{\n"
    "    return x >= 2147483648.0{1} ? 2147483647 : x > -2147483648.0{1} ? int(x) : isnan(x) ? 0 : -2147483647 - 1;\n}}",
    U4: "uint kk_to_uint({0} x) {{ return x >= 4294967296.0{1} ? 4294967295u : x > 0.0{1} ? uint(x) : 0u; }}",
    I8: "int64_t kk_to_long({0} x) {{\n    return x >= 9223372036854775808.0{1} ? 9223372036854775807l"
    " : x > -9223372036854775808.0{1} ? int64_t(x) : isnan(x) ? 0l : -9223372036854775807l - 1l;\n}}",
    U8: "uint64_t kk_to_ulong({0} x) {{ return x >= 18446744073709551616.0{1} ? 18446744073709551615ul"
    " : x > 0.0{1} ? uint64_t(x) : 0ul; }}",
}  # fmt: skip


class GlslNumbers(BindingWriter):
    """Writes constants and conversions."""

    types: ClassVar[Mapping[Scalar, str]] = {
        BOOL: "bool", I1: "int", U1: "int", I2: "int", U2: "int", I4: "int", U4: "uint", I8: "int64_t", U8: "uint64_t",
        F2: "float", F4: "float", F8: "double",
    }  # fmt: skip
    suffixes: ClassVar[dict[Scalar, str]] = {U4: "u", I8: "l", U8: "ul"}
    double_suffix = "lf"
    extensions: dict[str, None]  # that the text needs

    def vector_name(self, kind: Vector) -> str:
        return f"{ {F4: '', I4: 'i', U4: 'u'}[kind.element] }vec{kind.length}"

    def integer(self, value: int, kind: Scalar) -> Text:
        suffix = self.suffixes.get(kind, "")
        if kind is I8 or kind is U8:
            self.type_name(kind)
        if kind.signed and kind.size >= 4 and value == -(1 << (8 * kind.size - 1)):
            return f"{value + 1}{suffix} - 1{suffix}", SUM
        return f"{value}{suffix}", PRIMARY if value >= 0 else UNARY

    def not_finite(self, value: float, kind: Scalar) -> Text:
        sign = value < 0
        if kind is F8:
            bits = "7ff80000" if math.isnan(value) else "fff00000" if sign else "7ff00000"
            return f"packDouble2x32(uvec2(0u, 0x{bits}u))", PRIMARY
        bits = "7fc00000" if math.isnan(value) else "ff800000" if sign else "7f800000"
        return f"uintBitsToFloat(0x{bits}u)", PRIMARY

    def round_to_half(self, text: str) -> Text:
        body = "{ return unpackHalf2x16(packHalf2x16(vec2(x, 0.0))).x; }"
        return f"{self.helper('kk_round_to_half', f'float kk_round_to_half(float x) {body}')}({text})", PRIMARY

    def cast(self, operand: Expression, target: Scalar) -> Text:
        source = operand.type
        assert isinstance(source, Scalar)
        if is_small(target):
            return self.narrowed(operand, target)
        if self.type_name(source) == self.type_name(target):
            return self.x(operand, PRIMARY), PRIMARY
        if target is I8 and source.kind == "integer" and self.type_name(source) == "int":
            # Mesa 22 takes `int64_t(i) < 0` for false, whatever i is.
            self.type_name(target)
            self.helper("kk_long", "int64_t kk_long(int x) { return packInt2x32(ivec2(x, x >> 31)); }")
            return f"kk_long({self.x(operand)})", PRIMARY
        return super().cast(operand, target)

    def narrowed(self, operand: Expression, target: Scalar) -> Text:
        """The low bits of an integer, in an int."""
        if self.is_within(operand, target):
            return self.x(converted(operand, I4), PRIMARY), PRIMARY
        bits = 8 * target.size
        if target.signed:
            return f"bitfieldExtract({self.x(converted(operand, I4))}, 0, {bits})", PRIMARY
        mask = (1 << bits) - 1
        return self.infix("&", converted(operand, I4), Literal(operand.at, I4, mask))

    def truncation(self, source: Scalar, target: Scalar) -> str:
        kind = self.type_name(source)
        name = _TO_INTEGER[target].partition("(")[0].split()[1]
        self.type_name(target)
        self.helper(f"{name} {kind}", _TO_INTEGER[target].format(kind, "lf" if source is F8 else ""))
        return name

    def construct(self, e: Construct) -> Text:
        return f"{self.type_name(e.type)}({self.list_of(e.arguments)})", PRIMARY

    def signature(self, name: str, result: str, parameters: dict[str, str]) -> str:
        return f"{result} {name}({', '.join(f'{kind} {one}' for one, kind in parameters.items())})"
