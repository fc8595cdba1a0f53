"""OpenCL C 1.2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

from ..tree import (
    BuiltinCall,
    Declare,
    Expression,
    Literal,
    Logical,
    Switch,
    Ternary,
    Variable,
)
from ..types import BOOL, F2, F4, F8, I1, I2, I4, I8, U1, U2, U4, U8, Scalar, StructType, Type, Vector
from .effects import root_of
from .opencl_vectors import OpenCLVectors
from .pocl import LEFT_ALONE, SHOWN, VARIES, Needs, needs, with_reachable_default
from .texts import LEVELS, PRIMARY, TERNARY, UNARY, Text

_POSITIONS = {
    "kk_global_id": "get_global_id", "kk_local_id": "get_local_id", "kk_group_id": "get_group_id",
    "kk_group_size": "get_local_size", "kk_group_count": "get_num_groups", "kk_global_size": "get_global_size",
}  # fmt: skip
_ATOMICS = {"exchange": "xchg", "cas": "cmpxchg"}
_FLOAT_ATOMICS = {"add": "seen + v", "sub": "seen - v", "min": "fmin(seen, v)", "max": "fmax(seen, v)"}
# Not vload_half and vstore_half: they take an address, and PoCL 3.0 mixes up the variables of work-items around a barrier.
_FROM_HALF = """static inline float kk_from_half(ushort bits) {
    const uint rest = bits & 0x7fffu;
    const uint value = rest < 0x7c00u ? as_uint(as_float(rest << 13) * 0x1p112f) : 0x7f800000u | (rest << 13);
    return as_float(((bits & 0x8000u) << 16) | value);
}"""
_TO_HALF = """static inline ushort kk_to_half(float x) {
    const uint sign = (as_uint(x) >> 16) & 0x8000u;
    const uint bits = as_uint(x) & 0x7fffffffu;
    if (bits > 0x7f800000u) return (ushort)(sign | 0x7e00u);
    if (bits >= 0x477ff000u) return (ushort)(sign | 0x7c00u);
    if (bits < 0x38800000u) return (ushort)(sign | (as_uint(as_float(bits) + 0.5f) - 0x3f000000u));
    return (ushort)(sign | ((bits + 0xfffu + ((bits >> 13) & 1u) - 0x38000000u) >> 13));
}"""
# A CPU's compiler unrolls where it pays, and takes far longer when told to.
_UNROLL = """#if defined(__x86_64__) || defined(__aarch64__)
#define {name}
#else
#define {name} _Pragma("unroll{count}")
#endif"""

_ABS = {
    I4: "static inline int {}(int x) {{ return (int)(x < 0 ? 0u - (uint)x : (uint)x); }}",
    I8: "static inline long {}(long x) {{ return (long)(x < 0 ? 0ul - (ulong)x : (ulong)x); }}",
}
_ABS_VECTOR = "static inline {1} {0}({1} x) {{ return as_{1}(select(as_u{1}(x), 0u - as_u{1}(x), x)); }}"


class OpenCLWriter(OpenCLVectors):
    """Writes OpenCL C. A half is kept in a float, rounded after each operation: not every device computes with halves."""

    title = "OpenCL C"
    types: ClassVar[Mapping[Scalar, str]] = {
        BOOL: "bool", I1: "char", U1: "uchar", I2: "short", U2: "ushort", I4: "int", U4: "uint", I8: "long", U8: "ulong",
        F2: "float", F4: "float", F8: "double",
    }  # fmt: skip
    casts: ClassVar[dict[Scalar, str]] = {I4: "int", U4: "uint", I8: "long", U8: "ulong"}
    suffixes: ClassVar[dict[Scalar, str]] = {U4: "u", I8: "l", U8: "ul"}
    float_suffix = "f"
    shared = "__local"
    aligned = "__attribute__((aligned(16))) "
    function_qualifier = "static"
    restrict = "restrict"
    target = "opencl"
    masks_shifts = False  # OpenCL C takes shifts modulo the width itself
    _has_double = False

    # --- the module

    def head(self) -> None:
        super().head()
        if self._has_double:
            self.line("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
        if self._needs.is_left_alone:
            for line in LEFT_ALONE:
                self.line(line)

    def type_name(self, kind: Type) -> str:
        if kind is F8:
            self._has_double = True
        return super().type_name(kind)

    def kernel(self) -> None:
        x, y, z = self.group
        self.line(f"__kernel __attribute__((reqd_work_group_size({x}, {y}, {z})))")
        self.line(f"void {self.entry.symbol}({self.kernel_parameters() or 'void'}) {{")
        before = len(self.lines)
        self.kernel_body()
        if not any(line.strip(" {}") for line in self.lines[before:]):
            self.line(
                "    barrier(CLK_LOCAL_MEM_FENCE);  // NVIDIA's compiler refuses a kernel without any instruction"
            )
        self.line("}")

    def switch(self, s: Switch) -> None:
        super().switch(with_reachable_default(s, self.ranges.of(s.value)) if self.module.kernel.has_barrier else s)

    def declare(self, variable: Variable, value: Expression | None) -> None:
        super().declare(variable, value)
        if variable.space == "shared" and variable in self._needs.shown:
            self.line(f"{self.helper(*SHOWN)}({self.variable(variable)})")

    def logical(self, e: Logical) -> Text:
        if id(e.left) not in self._needs.same:
            return super().logical(e)
        level = LEVELS[e.operator]
        right = self.x(e.right, self.needed(e.operator, e.right, level + 1))
        return f"{self.helper(*VARIES)}({self.x(e.left)}) {e.operator} {right}", level

    def ternary(self, e: Ternary) -> Text:
        if id(e.condition) not in self._needs.same:
            return super().ternary(e)
        then, otherwise = self.x(e.then, TERNARY), self.x(e.otherwise, TERNARY)
        return f"{self.helper(*VARIES)}({self.x(e.condition)}) ? {then} : {otherwise}", TERNARY

    @cached_property
    def _needs(self) -> Needs:
        return needs(self.module) if self.module.kernel.has_barrier else Needs(set(), set(), False)

    def constant(self, constant: Declare) -> None:
        self.line(f"__constant {self.declaration(constant.variable, constant.value).removeprefix('const ')};")

    def struct_head(self, struct: StructType) -> str:
        return "typedef struct {"

    def struct_end(self, struct: StructType) -> str:
        return f"}} {self.type_name(struct)};"

    def space_of(self, variable: Variable) -> str:
        if variable in self.spaces:
            return self.spaces[variable]
        return {"buffer": "__global ", "shared": "__local ", "constant": "__constant "}.get(variable.space, "")

    def pointer(self, variable: Variable, space: str) -> str:
        return super().pointer(variable, space).replace("__constant const", "__constant")

    def unroll(self, rounds: int) -> None:
        name, count = (f"kk_unroll_{rounds}", f" {rounds}") if rounds else ("kk_unroll", "")
        self.line(self.helper(name, _UNROLL.format(name=name, count=count)))

    # --- numbers

    def not_finite(self, value: float, kind: Scalar) -> Text:
        text = "NAN" if math.isnan(value) else "-INFINITY" if value < 0 else "INFINITY"
        return (f"(double){text}", UNARY) if kind is F8 else (text, UNARY if text[0] == "-" else PRIMARY)

    def round_to_half(self, text: str) -> Text:
        return f"{self.from_half()}({self.to_half()}({text}))", PRIMARY

    def from_half(self) -> str:
        return self.helper("kk_from_half", _FROM_HALF)

    def to_half(self) -> str:
        return self.helper("kk_to_half", _TO_HALF)

    def float_to_integer(self, text: str, source: Scalar, target: Scalar) -> Text:
        kind, result = self.type_name(F4 if source is F2 else source), self.type_name(target)
        call = f"convert_{result}_sat_rtz"
        if target not in (I4, U4, I8, U8):
            return f"{call}({text})", PRIMARY
        # NaN becomes 0 by the standard; with PoCL the smallest integer, and with AVX-512 the largest one without a sign.
        name = f"kk_{kind}_to_{result}"
        self.helper(name, f"static inline {result} {name}({kind} x) {{ return x == x ? {call}(x) : 0; }}")
        return f"{name}({text})", PRIMARY

    # --- built-ins

    def position(self, name: str, dimension: Expression) -> Text:
        if name == "kk_group_size" and isinstance(dimension, Literal):  # PoCL 3.0 errs in loops up to get_local_size(0)
            return str(self.group[int(dimension.value)]), PRIMARY
        return f"(int){_POSITIONS[name]}({self.x(dimension)})", UNARY

    def unsigned_position(self, e: BuiltinCall) -> tuple[str, int, bool]:
        return f"(uint){_POSITIONS[e.builtin.name]}({self.x(e.arguments[0])})", UNARY, True

    def atomic(self, e: BuiltinCall) -> Text:
        element, *values = e.arguments
        operation = e.builtin.name.removeprefix("kk_atomic_")
        address = f"&{self.x(element, UNARY)}"
        if operation in ("load", "store"):
            return self.volatile(element, address, values)
        given = ", ".join(self.x(value, 2) for value in values)
        if e.type is F4 and operation in _FLOAT_ATOMICS:
            return f"{self._float_atomic(operation, element)}({address}, {given})", PRIMARY
        return f"atomic_{_ATOMICS.get(operation, operation)}({address}, {given})", PRIMARY

    def _float_atomic(self, operation: str, element: Expression) -> str:
        root = root_of(element)
        assert root is not None
        space = self.space_of(root).strip()
        name = f"kk_atomic_{operation}_{space.strip('_')}"
        return self.helper(
            name,
            f"""static inline float {name}(volatile {space} float* p, float v) {{
    volatile {space} uint* bits = (volatile {space} uint*)p;
    uint old = *bits, prior;
    do {{
        prior = old;
        const float seen = as_float(prior);
        old = atomic_cmpxchg(bits, prior, as_uint({_FLOAT_ATOMICS[operation]}));
    }} while (old != prior);
    return as_float(old);
}}""",
        )

    def function_call(self, e: BuiltinCall) -> Text:
        name = e.builtin.name
        if name == "kk_barrier":
            return "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)", PRIMARY
        if name == "kk_fence":
            return "mem_fence(CLK_GLOBAL_MEM_FENCE)", PRIMARY
        given = self.list_of(e.arguments)
        if name == "fract":  # OpenCL's own takes a pointer
            kind = self.type_name(e.type)
            own = f"kk_fract_{kind}"
            name = self.helper(own, f"static inline {kind} {own}({kind} x) {{ return x - floor(x); }}")
        text = f"{name}({given})"
        if e.type is F2:
            return self.round_to_half(text)
        if name == "abs" and e.type in _ABS:  # with OpenCL's own, PoCL takes that of the least integer for impossible
            own = f"kk_abs_{self.type_name(e.type)}"
            return f"{self.helper(own, _ABS[e.type].format(own))}({given})", PRIMARY
        if name == "abs" and isinstance(e.type, Vector) and e.type.element is I4:
            kind = self.type_name(e.type)
            own = f"kk_abs_{kind}"
            return f"{self.helper(own, _ABS_VECTOR.format(own, kind))}({given})", PRIMARY
        if name in ("abs", "fabs") and isinstance(e.type, Vector) and e.type.element is F4:
            return f"fabs({given})", PRIMARY
        return text, PRIMARY
