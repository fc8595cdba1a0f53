"""Numbers in GLSL: their types, constants and conversions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from struct import pack, unpack
from typing import ClassVar

from ..tree import Binary, Construct, Expression, Literal
from ..types import BOOL, F2, F4, F8, I1, I2, I4, I8, U1, U2, U4, U8, Scalar, Type, Vector
from .bindings import BindingWriter
from .small_values import is_small
from .texts import PRIMARY, SUM, UNARY, Text, converted

_TO_INTEGER = {
    I4: "int kk_to_int({0} x) {{\n"
    "    return x >= 2147483648.0{1} ? 2147483647 : x > -2147483648.0{1} ? int(x) : isnan(x) ? 0 : -2147483647 - 1;\n}}",
    U4: "uint kk_to_uint({0} x) {{ return x >= 4294967296.0{1} ? 4294967295u : x > 0.0{1} ? uint(x) : 0u; }}",
    # By their halves of 32 bits: NVIDIA's compiler makes int(x) of int64_t(x) where x is a float.
    I8: "int64_t kk_to_long({0} x) {{\n    const {0} size = abs(x), high = floor(size * 2.3283064365386963e-10{1});\n"
    "    if (isnan(x)) return 0l;\n"
    "    if (high >= 2147483648.0{1}) return x > 0.0{1} ? 9223372036854775807l : -9223372036854775807l - 1l;\n"
    "    const int64_t whole = int64_t(packUint2x32(uvec2(uint(size - high * 4294967296.0{1}), uint(high))));\n"
    "    return x < 0.0{1} ? -whole : whole;\n}}",
    U8: "uint64_t kk_to_ulong({0} x) {{\n    const {0} high = floor(x * 2.3283064365386963e-10{1});\n"
    "    if (high >= 4294967296.0{1}) return 18446744073709551615ul;\n"
    "    return x > 0.0{1} ? packUint2x32(uvec2(uint(x - high * 4294967296.0{1}), uint(high))) : 0ul;\n}}",
}  # fmt: skip
# Where the highest bit is set the value is halved, the last bit kept for the rounding: NVIDIA's compiler takes float(x) and
# float(int64_t(x)) for the same.
_FROM_ULONG = """{0} kk_ulong_to_{0}(uint64_t x) {{
    if ((x >> 63) == 0ul) return {0}(int64_t(x));
    return 2.0{1} * {0}(int64_t((x >> 1) | (x & 1ul)));
}}"""
# Reversed twice, which is nothing: NVIDIA's compiler divides by way of floats where it knows both numbers to be small, and
# takes -1 as an unsigned number for small.
_UNSIGNED = "uint kk_unsigned(int x) { return bitfieldReverse(bitfieldReverse(uint(x))); }"
# On the bits: NVIDIA's compiler makes x of unpackHalf2x16(packHalf2x16(vec2(x, 0.0))).x, and 0 where x was a double.
_ROUND_TO_HALF = """float kk_round_to_half(float x) {
    const uint bits = floatBitsToUint(x), size = bits & 0x7fffffffu, sign = bits ^ size;
    if (size >= 0x477ff000u) return size > 0x7f800000u ? x : uintBitsToFloat(sign | 0x7f800000u);
    if (size >= 0x38800000u) return uintBitsToFloat((bits + 0xfffu + ((bits >> 13) & 1u)) & 0xffffe000u);
    return uintBitsToFloat(sign | floatBitsToUint(roundEven(abs(x) * 16777216.0) * 5.9604644775390625e-8));
}"""


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
        return f"{self.helper('kk_round_to_half', _ROUND_TO_HALF)}({text})", PRIMARY

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
        if target is U4 and self._may_be_negative_and_small(operand):
            return f"{self.helper('kk_unsigned', _UNSIGNED)}({self.x(operand)})", PRIMARY
        if source is U8 and target.kind == "float" and not isinstance(operand, Literal):
            kind, suffix = ("double", self.double_suffix) if target is F8 else ("float", "")
            self.helper(f"kk_ulong_to_{kind}", _FROM_ULONG.format(kind, suffix))
            return f"kk_ulong_to_{kind}({self.x(operand)})", PRIMARY
        return super().cast(operand, target)

    def _may_be_negative_and_small(self, operand: Expression) -> bool:
        source = operand.type
        if (
            not isinstance(source, Scalar)
            or source.kind != "integer"
            or source.size > 4
            or isinstance(operand, Literal)
        ):
            return False
        low, high = self.ranges.of(operand)
        return -(1 << 24) <= low < 0 and high < 1 << 24

    def number(self, value: bool | int | float | str, kind: Type) -> Text:
        if kind is F8 and not _is_read_exactly(float(value)):
            low, high = unpack("<II", pack("<d", float(value)))
            return f"packDouble2x32(uvec2(0x{low:08x}u, 0x{high:08x}u))", PRIMARY
        return super().number(value, kind)

    def binary(self, e: Binary) -> Text:
        left, right = e.left, e.right
        if (
            e.operator == "/"
            and e.type in (F4, F8)
            and isinstance(left, Literal)
            and isinstance(right, Literal)
            and right.value == 0
        ):
            # For NVIDIA's compiler 0.0 / 0.0 is no NaN.
            return self.not_finite(float(left.value) * math.copysign(math.inf, float(right.value)), e.type)
        return super().binary(e)

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


def _is_read_exactly(value: float) -> bool:
    """Whether compilers make exactly this number of its digits: NVIDIA's cuts off where others round."""
    return not math.isfinite(value) or (abs(value) < 1e12 and (value * 1024.0).is_integer())
