"""Values in CUDA C: conversions, functions, and vectors, for which CUDA C has types and no operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ..tree import Binary, BuiltinCall, Construct, Expression, Index, Swizzle, Unary
from ..types import BOOL, F2, F4, F8, I1, I2, I4, I8, U1, U2, U4, U8, Scalar, StructType, Vector, limits
from .pointers import PointerWriter
from .texts import PRIMARY, UNARY, Text
from .wrapping import WrappingWriter

DEVICE = "__device__ inline"
_TEMPLATE = f"template <typename T>\n{DEVICE}"
# Functions that CUDA lacks.
_HELPERS = {
    "sign": "T kk_sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x; }",
    "fract": "T kk_fract(T x) { return x - floor(x); }",
    "step": "T kk_step(T edge, T x) { return x < edge ? T(0) : T(1); }",
    "mix": "T kk_mix(T a, T b, T t) { return a + (b - a) * t; }",
    "clamp": "T kk_clamp(T x, T low, T high) { return min(max(x, low), high); }",
    "smoothstep": "T kk_smoothstep(T low, T high, T x) {\n"
    "    const T t = min(max((x - low) / (high - low), T(0)), T(1));\n    return t * t * (T(3) - T(2) * t);\n}",
}
_SUFFIXED = {"sign", "fract", "step", "mix", "clamp", "smoothstep", "isnan", "isinf", "isfinite", "signbit"}
_TO_INTEGER = {
    (F4, I4): "__float2int_rz", (F4, U4): "__float2uint_rz", (F4, I8): "__float2ll_rz", (F4, U8): "__float2ull_rz",
    (F8, I4): "__double2int_rz", (F8, U4): "__double2uint_rz", (F8, I8): "__double2ll_rz", (F8, U8): "__double2ull_rz",
}  # fmt: skip


class CudaValues(PointerWriter):
    """Writes conversions, functions and vectors. What is done with a vector is a function of its own."""

    types: ClassVar[Mapping[Scalar, str]] = {
        BOOL: "bool", I1: "signed char", U1: "unsigned char", I2: "short", U2: "unsigned short", I4: "int", U4: "unsigned int",
        I8: "long long", U8: "unsigned long long", F2: "float", F4: "float", F8: "double",
    }  # fmt: skip
    casts: ClassVar[dict[Scalar, str]] = {I4: "int", U4: "unsigned", I8: "long long", U8: "unsigned long long"}

    def float_to_integer(self, text: str, source: Scalar, target: Scalar) -> Text:
        source = F4 if source is F2 else source
        wide = target if target.size >= 4 else I4 if target.signed else U4
        function = _TO_INTEGER[source, wide]
        if source is F8 or wide.size == 8:  # only the conversion from float to 32 bits turns NaN to 0
            name = f"kk{function.removesuffix('_rz')[1:]}"
            parameter, result = self.type_name(source), self.type_name(wide)
            function = self.helper(
                name, f"{DEVICE} {result} {name}({parameter} x) {{ return x == x ? {function}(x) : 0; }}"
            )
        call = f"{function}({text})"
        if wide is target:
            return call, PRIMARY
        least, most = limits(target)
        inner = f"min(max({call}, {least}), {most})" if target.signed else f"min({call}, {most}u)"
        return f"({self.type_name(target)}){inner}", UNARY

    def construct(self, e: Construct) -> Text:
        if isinstance(e.type, Vector):
            return f"make_{e.type.title}({self.list_of(e.arguments)})", PRIMARY
        if isinstance(e.type, StructType):
            return f"{self.type_name(e.type)}{{{self.list_of(e.arguments)}}}", PRIMARY
        return super().construct(e)

    def splat(self, operand: Expression, target: Vector) -> Text:
        if self.simple(operand):
            text = self.x(operand, 2)
            return f"make_{target.title}({', '.join([text] * target.length)})", PRIMARY
        name, kind = f"kk_{target.title}", self.type_name(target.element)
        text = ", ".join(["x"] * target.length)
        self.helper(name, f"{DEVICE} {target.title} {name}({kind} x) {{ return make_{target.title}({text}); }}")
        return f"{name}({self.x(operand)})", PRIMARY

    def vector_cast(self, operand: Expression, target: Vector) -> Text:
        source = operand.type
        assert isinstance(source, Vector)
        name = f"kk_to_{target.title}"
        parts = []
        for one in "xyzw"[: target.length]:
            if source.element is F4:
                parts.append(self.float_to_integer(f"v.{one}", F4, target.element)[0])
            else:
                parts.append(f"({self.casts.get(target.element) or self.type_name(target.element)})v.{one}")
        body = f"return make_{target.title}({', '.join(parts)});"
        self.helper(f"{name} {source.title}", f"{DEVICE} {target.title} {name}({source.title} v) {{ {body} }}")
        return f"{name}({self.x(operand)})", PRIMARY

    def elementwise(self, name: str, result: Vector, kinds: tuple[str, ...], template: str) -> None:
        """A helper function that does the same for each element; `{}` in `template` is replaced by the element's name."""
        parameters = ", ".join(f"{kind} {one}" for kind, one in zip(kinds, "abc", strict=False))
        parts = ", ".join(template.replace("{}", one) for one in "xyzw"[: result.length])
        head = f"{DEVICE} {result.title} {name}({parameters})"
        self.helper(f"{name} {' '.join(kinds)}", f"{head} {{ return make_{result.title}({parts}); }}")

    def vector_operation(self, e: Binary | Unary) -> Text:
        assert isinstance(e.type, Vector)
        kind, operator = e.type, e.operator
        is_signed = kind.element is I4
        if isinstance(e, Unary):
            template = "(int)-(unsigned)a.{}" if operator == "-" and is_signed else f"{operator}a.{{}}"
            self.elementwise(f"operator{operator}", kind, (kind.title,), template)
            return super(WrappingWriter, self).unary(e)
        right = e.right.type
        second = "b.{}" if isinstance(right, Vector) else "b"
        if operator in ("<<", ">>"):
            template = f"a.{{}} {operator} ({second} & 31)"
        elif is_signed and operator in ("+", "-", "*"):
            template = f"(int)((unsigned)a.{{}} {operator} {second})"
        else:
            template = f"a.{{}} {operator} {second}"
        other = right.title if isinstance(right, Vector) else self.type_name(right)
        self.elementwise(f"operator{operator}", kind, (kind.title, other), template)
        return self.infix(operator, e.left, e.right)

    def vector_element(self, e: Index) -> Text:
        return f"(&{self.x(e.base, PRIMARY)}.x)[{self.index_text(e.index)}]", PRIMARY

    def swizzle(self, e: Swizzle) -> Text:
        if len(e.elements) == 1:
            return super().swizzle(e)
        base = e.base if self.simple(e.base) else self.keep(e.base)
        text = self.x(base, PRIMARY)
        assert isinstance(e.type, Vector)
        return f"make_{e.type.title}({', '.join(f'{text}.{one}' for one in e.elements)})", PRIMARY

    def plain_store(self, target: Expression) -> bool:
        return (not isinstance(target, Swizzle) or len(target.elements) == 1) and super().plain_store(target)

    def stored(self, target: Expression, value: Expression) -> Text:
        if not isinstance(target, Swizzle):
            return super().stored(target, value)
        fixed = self.fixed_target(target.base)
        kept = self.keep(value, "value")
        base, text = self.x(fixed, PRIMARY), self.x(kept)
        parts = [f"{base}.{one} = {text}.{'xyzw'[at]}" for at, one in enumerate(target.elements)]
        return ", ".join(parts), 1

    def scalar_function(self, name: str, kind: Scalar) -> str:
        """The function that does this for one number."""
        if name in _HELPERS:
            return self.helper(f"kk_{name}", f"{_TEMPLATE} {_HELPERS[name]}")
        if name in ("popcount", "clz"):
            return {"popcount": "__popc", "clz": "__clz"}[name] + ("ll" if kind.size == 8 else "")
        if kind.kind == "float" and name not in _SUFFIXED:
            name = {"abs": "fabs", "min": "fmin", "max": "fmax"}.get(name, name)
            return name if kind is F8 else f"{name}f"
        return "llabs" if name == "abs" and kind.size == 8 else name

    def vector_function(self, e: BuiltinCall, kind: Vector) -> str:
        name, elements = e.builtin.name, "xyzw"[: kind.length]
        own = f"kk_{name}"
        if e.builtin.rule in ("reduce", "direction"):
            products = " + ".join(f"a.{one} * b.{one}" for one in elements)
            title = kind.title
            dot = f"{DEVICE} float kk_dot({title} a, {title} b) {{ return {products}; }}"
            if name in ("dot", "length", "normalize", "distance"):
                self.helper(f"kk_dot {title}", dot)
            if name == "length":
                self.helper(f"{own} {title}", f"{DEVICE} float {own}({title} a) {{ return sqrtf(kk_dot(a, a)); }}")
            elif name == "distance":
                parts = ", ".join(f"a.{one} - b.{one}" for one in elements)
                body = f"const {title} d = make_{title}({parts});\n    return sqrtf(kk_dot(d, d));"
                self.helper(f"{own} {title}", f"{DEVICE} float {own}({title} a, {title} b) {{\n    {body}\n}}")
            elif name == "normalize":
                parts = ", ".join(f"a.{one} / length" for one in elements)
                body = f"const float length = sqrtf(kk_dot(a, a));\n    return make_{title}({parts});"
                self.helper(f"{own} {title}", f"{DEVICE} {title} {own}({title} a) {{\n    {body}\n}}")
            elif name == "cross":
                parts = ", ".join(f"a.{p} * b.{q} - a.{q} * b.{p}" for p, q in ("yz", "zx", "xy"))
                self.helper(own, f"{DEVICE} {title} {own}({title} a, {title} b) {{ return make_{title}({parts}); }}")
            return own
        given = ", ".join(f"{one}.{{}}" for one in "abc"[: len(e.arguments)])
        # The function for one number comes first: the one for vectors calls it.
        function = self.scalar_function(name, kind.element)
        self.elementwise(own, kind, (kind.title,) * len(e.arguments), f"{function}({given})")
        return own
