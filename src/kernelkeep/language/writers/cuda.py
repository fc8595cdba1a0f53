"""CUDA C, for NVRTC and for HIP's compiler."""

from __future__ import annotations

import math
from typing import ClassVar

from ..tree import BuiltinCall, Declare, Expression, Literal
from ..types import F2, F4, F8, I4, I8, U4, U8, Array, Scalar, StructType, Vector
from .cuda_values import DEVICE, CudaValues
from .texts import PRIMARY, PRODUCT, SUM, UNARY, Text

_BITS = {
    (F4, "as_int"): "__float_as_int", (F4, "as_uint"): "__float_as_uint", (I4, "as_float"): "__int_as_float",
    (U4, "as_float"): "__uint_as_float", (I4, "as_uint"): "(unsigned)", (U4, "as_int"): "(int)",
}  # fmt: skip
POSITIONS = {
    "kk_global_id": "blockIdx.{0} * blockDim.{0} + threadIdx.{0}", "kk_local_id": "threadIdx.{0}",
    "kk_group_id": "blockIdx.{0}", "kk_group_size": "blockDim.{0}", "kk_group_count": "gridDim.{0}",
    "kk_global_size": "blockDim.{0} * gridDim.{0}",
}  # fmt: skip
_ATOMICS = {"add": "Add", "sub": "Sub", "min": "Min", "max": "Max", "and": "And", "or": "Or", "xor": "Xor", "exchange": "Exch",
            "cas": "CAS"}  # fmt: skip
_CLOCK = f"""{DEVICE} unsigned long long kk_clock() {{
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
}}"""
_FROM_HALF = f"""{DEVICE} float kk_from_half(unsigned short bits) {{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}}"""
_TO_HALF = f"""{DEVICE} unsigned short kk_to_half(float x) {{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}}"""


class CudaWriter(CudaValues):
    """Writes CUDA C. A half is kept in a float, rounded after each operation."""

    title = "CUDA C"
    suffixes: ClassVar[dict[Scalar, str]] = {U4: "u", I8: "ll", U8: "ull"}
    float_suffix = "f"
    shared = "__shared__"
    aligned = "__align__(16) "
    function_qualifier = "__device__"
    restrict = "__restrict__"
    barrier = "__syncthreads()"
    target = "cuda"
    positions: ClassVar[dict[str, str]] = POSITIONS

    # --- the module

    def kernel(self) -> None:
        x, y, z = self.group
        self.line(f'extern "C" __global__ void __launch_bounds__({x * y * z})')
        self.line(f"{self.entry.symbol}({self.kernel_parameters()}) {{")
        self.kernel_body()
        self.line("}")

    def constant(self, constant: Declare) -> None:
        variable = constant.variable
        # A constant array that is indexed at run time needs memory of the device.
        where = "__constant__ " if isinstance(variable.type, (Array, Vector, StructType)) else "constexpr "
        text = self.declaration(variable, constant.value)
        self.line(f"{where}{text if where[0] == '_' else text.removeprefix('const ')};")

    def unroll(self, rounds: int) -> None:
        self.line(f"#pragma unroll {rounds}" if rounds else "#pragma unroll")

    # --- numbers

    def not_finite(self, value: float, kind: Scalar) -> Text:
        sign = value < 0
        if kind is F8:
            bits = "7ff8000000000000" if math.isnan(value) else "fff0000000000000" if sign else "7ff0000000000000"
            return f"__longlong_as_double(0x{bits}ll)", PRIMARY
        bits = "7fc00000" if math.isnan(value) else "ff800000" if sign else "7f800000"
        return f"__uint_as_float(0x{bits}u)", PRIMARY

    def round_to_half(self, text: str) -> Text:
        return f"{self.from_half()}({self.to_half()}({text}))", PRIMARY

    def from_half(self) -> str:
        return self.helper("kk_from_half", _FROM_HALF)

    def to_half(self) -> str:
        return self.helper("kk_to_half", _TO_HALF)

    # --- built-ins

    def position(self, name: str, dimension: Expression) -> Text:
        if isinstance(dimension, Literal):
            if name == "kk_group_size":
                return str(self.group[int(dimension.value)]), PRIMARY
            text = self.positions[name].format("xyz"[int(dimension.value)])
            return (f"(int)({text})" if " " in text else f"(int){text}"), UNARY
        x, y, z = (self.positions[name].format(one) for one in "xyz")
        self.helper(name, f"{DEVICE} int {name}(int d) {{ return d == 0 ? {x} : d == 1 ? {y} : {z}; }}")
        return f"{name}({self.x(dimension)})", PRIMARY

    def unsigned_position(self, e: BuiltinCall) -> tuple[str, int, bool]:
        dimension = e.arguments[0]
        if not isinstance(dimension, Literal):
            return super().unsigned_position(e)
        text = self.positions[e.builtin.name].format("xyz"[int(dimension.value)])
        return text, SUM if " + " in text else PRODUCT if " * " in text else PRIMARY, True

    def atomic(self, e: BuiltinCall) -> Text:
        element, *values = e.arguments
        operation = e.builtin.name.removeprefix("kk_atomic_")
        address = f"&{self.x(element, UNARY)}"
        if operation in ("load", "store"):
            return self.volatile(element, address, values)
        given = ", ".join(self.x(value, 2) for value in values)
        if e.type is F4 and operation == "sub":
            return f"atomicAdd({address}, {f'-{given}' if given.isidentifier() else f'-({given})'})", PRIMARY
        if e.type is F4 and operation in ("min", "max"):
            name = f"kk_atomic_{operation}"
            keeps = ">" if operation == "min" else "<"
            self.helper(name, _FLOAT_ATOMIC.format(name=name, keeps=keeps))
            return f"{name}({address}, {given})", PRIMARY
        return f"atomic{_ATOMICS[operation]}({address}, {given})", PRIMARY

    def system_call(self, e: BuiltinCall) -> Text:
        name = e.builtin.name
        if name == "kk_clock":
            return f"{self.helper(name, _CLOCK)}()", PRIMARY
        return {"kk_fence_system": "__threadfence_system()", "kk_pause": "__nanosleep(2000)"}[name], PRIMARY

    def function_call(self, e: BuiltinCall) -> Text:
        name, kind = e.builtin.name, e.type
        if name == "kk_barrier":
            return self.barrier, PRIMARY
        if name == "kk_fence":
            return "__threadfence()", PRIMARY
        given = self.list_of(e.arguments)
        first = e.arguments[0].type
        if e.builtin.rule == "bits":
            function = _BITS[first, name]  # type: ignore[index]
            return (f"{function}({given})", PRIMARY) if function[0] == "_" else (f"{function}({given})", UNARY)
        if isinstance(first, Vector):
            return f"{self.vector_function(e, first)}({given})", PRIMARY
        assert isinstance(first, Scalar)
        text = f"{self.scalar_function(name, first)}({given})"
        if kind is F2:
            return self.round_to_half(text)
        if e.builtin.rule == "integer":
            return f"({self.casts[kind]}){text}", UNARY  # type: ignore[index]
        return text, PRIMARY


_FLOAT_ATOMIC = (
    DEVICE
    + """ float {name}(float* p, float v) {{
    unsigned old = *(volatile unsigned*)p;
    while (__uint_as_float(old) {keeps} v || isnan(__uint_as_float(old))) {{
        const unsigned seen = atomicCAS((unsigned*)p, old, __float_as_uint(v));
        if (seen == old) break;
        old = seen;
    }}
    return __uint_as_float(old);
}}"""
)
