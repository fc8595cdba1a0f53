"""OpenCL C."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from .base import C_TYPES, NO_DEVICE_CLOCK, Language, Pointers

if TYPE_CHECKING:
    from ..lowering import KernelParts
    from ..source import Source

_PRELUDE = """\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define kk_global_id(d) ((int)get_global_id(d))
#define kk_local_id(d) ((int)get_local_id(d))
#define kk_group_id(d) ((int)get_group_id(d))
#define kk_group_size(d) ((int)get_local_size(d))
#define kk_group_count(d) ((int)get_num_groups(d))
#define kk_global_size(d) ((int)get_global_size(d))
#define kk_barrier() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define kk_fence() mem_fence(CLK_GLOBAL_MEM_FENCE)
#define kk_int(v) ((int)(v))
#define kk_uint(v) ((uint)(v))
#define kk_float(v) ((float)(v))
#define kk_double(v) ((double)(v))
#define sqrtf sqrt
#define expf exp
#define logf log
#define powf pow
#define sinf sin
#define cosf cos
#define tanhf tanh
#define fabsf fabs
#define floorf floor
#define fminf fmin
#define fmaxf fmax
#define fmaf fma
"""
_OVERLOAD = "__attribute__((overloadable))"
_FLOAT_ATOMICS = {"add": "seen + v", "sub": "seen - v", "min": "fmin(seen, v)", "max": "fmax(seen, v)", "exchange": "v"}


@cache
def _atomics() -> str:
    return "".join(_atomic_lines())


def _atomic_lines() -> Iterator[str]:
    operations = ("add", "sub", "min", "max", "and", "or", "xor", "exchange")
    native = {"exchange": "xchg"}
    for operation in operations:
        yield f"#define kk_atomic_{operation}(x, v) kk_{operation}(&(x), (v))\n"
    yield "#define kk_atomic_cas(x, e, v) kk_cas(&(x), (e), (v))\n"
    # OpenCL C has no templates; overloads carry the address space and the type.
    for space in ("__global", "__local"):
        for kind in ("int", "uint"):
            pointer = f"volatile {space} {kind}*"
            for operation in operations:
                call = f"atomic_{native.get(operation, operation)}(p, v)"
                yield f"inline {kind} {_OVERLOAD} kk_{operation}({pointer} p, {kind} v) {{ return {call}; }}\n"
            yield (
                f"inline {kind} {_OVERLOAD} kk_cas({pointer} p, {kind} e, {kind} v) {{ return atomic_cmpxchg(p, e, v); }}\n"
            )
        for operation, result in _FLOAT_ATOMICS.items():
            yield (
                f"inline float {_OVERLOAD} kk_{operation}(volatile {space} float* p, float v) {{\n"
                f"  volatile {space} uint* bits = (volatile {space} uint*)p;\n"
                "  uint old = *bits, prior;\n"
                f"  do {{ prior = old; float seen = as_float(prior); old = atomic_cmpxchg(bits, prior, as_uint({result})); }}"
                " while (old != prior);\n  return as_float(old);\n}\n"
            )


class _OpenCL(Language):
    name = "opencl"
    title = "OpenCL C"
    suffixes = (".cl",)

    handwritten_kernel = """\
{before}__kernel void {name}(__global const {kind}* x, __global {kind}* y, {kind} a, int n) {{
int i = get_global_id(0);
{statement}
}}
"""

    types: ClassVar[Mapping[str, str]] = {**C_TYPES, "i1": "char", "i8": "long", "u8": "ulong"}
    # A CPU's compiler unrolls where it pays, and takes far longer when told to. vload4 promises the alignment of one
    # float only, and then reads four times.
    vector_helpers = """\
#if defined(__x86_64__) || defined(__aarch64__)
#define kk_unroll
#else
#define kk_unroll _Pragma("unroll")
#endif
typedef float4 kk_float4;
#define kk_make_float4(a, b, c, d) ((float4)(a, b, c, d))
#define kk_load4(x, i) kk_load(&(x)[i])
#define kk_store4(x, i, v) kk_store(&(x)[i], v)
inline float4 OVERLOAD kk_load(__global const float* p) { return *(__global const float4*)p; }
inline float4 OVERLOAD kk_load(__local const float* p) { return *(__local const float4*)p; }
inline void OVERLOAD kk_store(__global float* p, float4 v) { *(__global float4*)p = v; }
inline void OVERLOAD kk_store(__local float* p, float4 v) { *(__local float4*)p = v; }
""".replace("OVERLOAD", _OVERLOAD)
    # What OpenCL adds to C, and the functions and macros that the lowered text needs.
    reserved_words = frozenset(
        """HUGE_VAL HUGE_VALF INFINITY MAXFLOAT NAN get_global_id get_global_size get_group_id get_local_id get_local_size
        get_num_groups complex constant event_t generic global half imaginary kernel local pipe quad read_only read_write
        sampler_t size_t intptr_t uintptr_t ptrdiff_t uchar uint ulong ushort write_only""".split()
    )
    reserved_names = re.compile(r"image[123]d_\w+\Z|(?:HALF|CL|CLK)_[A-Z0-9_]+\Z")

    def write(self, kernel: KernelParts) -> Source:
        from ..lowering import write_c

        x, y, z = kernel.group
        return write_c(
            kernel,
            prelude=_PRELUDE + (_atomics() if kernel.uses_atomics else ""),
            head=f"__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) void",
            buffer="__global ",
            shared="__local __attribute__((aligned(16)))" if kernel.uses_vectors else "__local",
        )

    pointers = Pointers("inline void", "__global ", "restrict")
    state_helpers = (
        NO_DEVICE_CLOCK
        + """\
#define KK_READ(x) (*(volatile __global uint*)&(x))
#define KK_WRITE(x, v) (*(volatile __global uint*)&(x) = (v))
#define KK_UNROLL
#define KK_CHECK_LOOPS
#define KK_OVERRAN false
"""
    )


LANGUAGE = _OpenCL()
