"""A portable kernel in CUDA C, OpenCL C or GLSL: what each language needs before the body, and how the body is put in."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import ArgumentError
from .helper_calls import not_as_macros
from .remainders import FUNCTIONS, FUNCTIONS_64, with_c_remainders
from .signature import DTYPES, declaration, entry_symbol
from .source import Source

if TYPE_CHECKING:
    from .portable import PortableKernel

__all__ = ["lower"]


def lower(kernel: PortableKernel, language: str) -> Source:
    """The kernel in a language."""
    source = Source("", kernel.name, language, tuple(kernel.options), kernel.defines)
    if language == "glsl":
        return _lower_glsl(kernel, source)
    text = {"cuda": _lower_cuda, "opencl": _lower_opencl}[language](kernel, source)
    return replace(source, text=text)


# Only bodies that use them get these, so that the text of all others is as short as it can be.
_VECTORS = {
    "cuda": """\
#define kk_unroll _Pragma("unroll")
typedef float4 kk_float4;
#define kk_make_float4(a, b, c, d) make_float4(a, b, c, d)
#define kk_load4(x, i) (*(const float4*)(&(x)[i]))
#define kk_store4(x, i, v) (*(float4*)(&(x)[i]) = (v))
""",
    # A CPU's compiler unrolls where it pays, and takes far longer when told to. vload4 promises the alignment of one
    # float only, and then reads four times.
    "opencl": """\
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
""".replace("OVERLOAD", "__attribute__((overloadable))"),
    "glsl": """\
#define kk_unroll
#define kk_float4 vec4
#define kk_make_float4(a, b, c, d) vec4(a, b, c, d)
#define kk_load4(array, i) vec4(array[i], array[(i) + 1], array[(i) + 2], array[(i) + 3])
#define kk_store4(array, i, v) { vec4 kk_v = v; int kk_i = i; \
array[kk_i] = kk_v.x; array[kk_i + 1] = kk_v.y; array[kk_i + 2] = kk_v.z; array[kk_i + 3] = kk_v.w; }
""",
}
_VECTOR = re.compile(r"\bkk_(unroll|float4|make_float4|load4|store4)\b")

# The helpers that repeat an argument or are a block, as expressions that evaluate each argument once (`helper_calls.py`).
# GLSL passes no array to a function, so there the index waits in a variable of the work-item. The value to store is taken
# first: it may be loaded itself, and so need that variable.
_AS_EXPRESSIONS: dict[str, dict[str, str]] = {
    "cuda": {
        name: f"__device__ inline int {name}(int d) {{ return (int)(d == 0 ? {x} : d == 1 ? {y} : {z}); }}\n"
        for name, (x, y, z) in {
            "kk_global_id": [f"blockIdx.{d} * blockDim.{d} + threadIdx.{d}" for d in "xyz"],
            "kk_local_id": [f"threadIdx.{d}" for d in "xyz"],
            "kk_group_id": [f"blockIdx.{d}" for d in "xyz"],
            "kk_group_size": [f"blockDim.{d}" for d in "xyz"],
            "kk_group_count": [f"gridDim.{d}" for d in "xyz"],
            "kk_global_size": [f"blockDim.{d} * gridDim.{d}" for d in "xyz"],
        }.items()
    },
    "glsl": {
        "kk_global_size": "int kk_global_size(int d) { return kk_group_size(d) * kk_group_count(d); }\n",
        "kk_barrier": "void kk_barrier() { memoryBarrierShared(); memoryBarrierBuffer(); barrier(); }\n",
        "kk_load4": """\
int kk_load_at;
#define kk_load4(array, i) (kk_load_at = int(i), \
vec4(array[kk_load_at], array[kk_load_at + 1], array[kk_load_at + 2], array[kk_load_at + 3]))
""",
        "kk_store4": """\
int kk_store_at;
vec4 kk_stored;
#define kk_store4(array, i, v) (kk_stored = (v), kk_store_at = int(i), \
array[kk_store_at] = kk_stored.x, array[kk_store_at + 1] = kk_stored.y, \
array[kk_store_at + 2] = kk_stored.z, array[kk_store_at + 3] = kk_stored.w)
""",
    },
}


def _vectors(text: str, language: str) -> str:
    return _VECTORS[language] if _VECTOR.search(text) else ""


def _expressions(kernel: PortableKernel, source: Source, *texts: str) -> str:
    """The helpers that this kernel's macros would get wrong, in place of those."""
    names = not_as_macros(source.language, texts, tuple(source.macros.items()), kernel._changing)
    return "".join(f"#undef {name}\n{_AS_EXPRESSIONS[source.language][name]}" for name in sorted(names))


_CUDA_PRELUDE = """\
typedef unsigned int uint;
#define kk_global_id(d) ((int)((d) == 0 ? blockIdx.x * blockDim.x + threadIdx.x : (d) == 1 ? blockIdx.y * blockDim.y \
+ threadIdx.y : blockIdx.z * blockDim.z + threadIdx.z))
#define kk_local_id(d) ((int)((d) == 0 ? threadIdx.x : (d) == 1 ? threadIdx.y : threadIdx.z))
#define kk_group_id(d) ((int)((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y : blockIdx.z))
#define kk_group_size(d) ((int)((d) == 0 ? blockDim.x : (d) == 1 ? blockDim.y : blockDim.z))
#define kk_group_count(d) ((int)((d) == 0 ? gridDim.x : (d) == 1 ? gridDim.y : gridDim.z))
#define kk_global_size(d) (kk_group_size(d) * kk_group_count(d))
#define kk_barrier() __syncthreads()
#define kk_fence() __threadfence()
#define kk_int(v) ((int)(v))
#define kk_uint(v) ((unsigned int)(v))
#define kk_float(v) ((float)(v))
#define kk_double(v) ((double)(v))
#define kk_atomic_add(x, v) atomicAdd(&(x), (v))
#define kk_atomic_sub(x, v) kk_sub(&(x), (v))
#define kk_atomic_min(x, v) kk_min(&(x), (v))
#define kk_atomic_max(x, v) kk_max(&(x), (v))
#define kk_atomic_and(x, v) atomicAnd(&(x), (v))
#define kk_atomic_or(x, v) atomicOr(&(x), (v))
#define kk_atomic_xor(x, v) atomicXor(&(x), (v))
#define kk_atomic_exchange(x, v) atomicExch(&(x), (v))
#define kk_atomic_cas(x, e, v) atomicCAS(&(x), (e), (v))
__device__ inline int kk_sub(int* p, int v) { return atomicSub(p, v); }
__device__ inline uint kk_sub(uint* p, uint v) { return atomicSub(p, v); }
__device__ inline float kk_sub(float* p, float v) { return atomicAdd(p, -v); }
__device__ inline int kk_min(int* p, int v) { return atomicMin(p, v); }
__device__ inline uint kk_min(uint* p, uint v) { return atomicMin(p, v); }
__device__ inline int kk_max(int* p, int v) { return atomicMax(p, v); }
__device__ inline uint kk_max(uint* p, uint v) { return atomicMax(p, v); }
__device__ inline float kk_fold(float* p, float v, int larger) {
  uint old = *(volatile uint*)p;
  while (larger ? __uint_as_float(old) < v : __uint_as_float(old) > v) {
    uint seen = atomicCAS((uint*)p, old, __float_as_uint(v));
    if (seen == old) break;
    old = seen;
  }
  return __uint_as_float(old);
}
__device__ inline float kk_min(float* p, float v) { return kk_fold(p, v, 0); }
__device__ inline float kk_max(float* p, float v) { return kk_fold(p, v, 1); }
"""


def _lower_cuda(kernel: PortableKernel, source: Source) -> str:
    functions = kernel._functions("cuda")
    vectors = _vectors(kernel.body + functions, "cuda")
    shared, body = kernel._split_body("__shared__ __align__(16)" if vectors else "__shared__")
    parts = []
    for p in kernel.signature.params or ():
        kind = DTYPES[p.dtype or ""][1]
        if p.kind == "scalar":
            parts.append(f"const {kind} {p.name}")
        else:
            parts.append(f"{'const ' if p.access == 'r' else ''}{kind}* {p.name}")
    x, y, z = kernel.signature.group or (1, 1, 1)
    head = f'extern "C" __global__ void __launch_bounds__({x * y * z}) {entry_symbol(kernel.name)}({", ".join(parts)})'
    vectors += _expressions(kernel, source, kernel.body, functions)
    before = f"{declaration(kernel.signature)}\n{_CUDA_PRELUDE}{vectors}{functions}"
    return f"{before}{head} {{\n{shared}\n#line {kernel._first_line}\n{body}\n}}\n"


def _opencl_prelude() -> str:
    ids = """\
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
    lines = [ids]
    operations = ("add", "sub", "min", "max", "and", "or", "xor", "exchange")
    native = {"exchange": "xchg"}
    for operation in operations:
        lines.append(f"#define kk_atomic_{operation}(x, v) kk_{operation}(&(x), (v))\n")
    lines.append("#define kk_atomic_cas(x, e, v) kk_cas(&(x), (e), (v))\n")
    # OpenCL C has no templates; overloads carry the address space and the type.
    for space in ("__global", "__local"):
        for kind in ("int", "uint"):
            pointer = f"volatile {space} {kind}*"
            for operation in operations:
                call = f"atomic_{native.get(operation, operation)}(p, v)"
                lines.append(f"inline {kind} {_OVERLOAD} kk_{operation}({pointer} p, {kind} v) {{ return {call}; }}\n")
            lines.append(
                f"inline {kind} {_OVERLOAD} kk_cas({pointer} p, {kind} e, {kind} v) {{ return atomic_cmpxchg(p, e, v); }}\n"
            )
        folds = {"add": "seen + v", "sub": "seen - v", "min": "fmin(seen, v)", "max": "fmax(seen, v)", "exchange": "v"}
        for operation, fold in folds.items():
            lines.append(
                f"inline float {_OVERLOAD} kk_{operation}(volatile {space} float* p, float v) {{\n"
                f"  volatile {space} uint* bits = (volatile {space} uint*)p;\n"
                "  uint old = *bits, prior;\n"
                f"  do {{ prior = old; float seen = as_float(prior); old = atomic_cmpxchg(bits, prior, as_uint({fold})); }}"
                " while (old != prior);\n  return as_float(old);\n}\n"
            )
    return "".join(lines)


_OVERLOAD = "__attribute__((overloadable))"


def _lower_opencl(kernel: PortableKernel, source: Source) -> str:
    functions = kernel._functions("opencl")
    vectors = _vectors(kernel.body + functions, "opencl")
    shared, body = kernel._split_body("__local __attribute__((aligned(16)))" if vectors else "__local")
    parts = []
    for p in kernel.signature.params or ():
        kind = {"i8": "long", "u8": "ulong", "i1": "char"}.get(p.dtype or "", DTYPES[p.dtype or ""][1])
        if p.kind == "scalar":
            parts.append(f"const {kind} {p.name}")
        else:
            parts.append(f"__global {'const ' if p.access == 'r' else ''}{kind}* {p.name}")
    x, y, z = kernel.signature.group or (1, 1, 1)
    prelude = (
        _opencl_prelude()
        if "kk_atomic_" in kernel.body + functions
        else _opencl_prelude().split("#define kk_atomic_")[0]
    )
    group = f"__attribute__((reqd_work_group_size({x}, {y}, {z})))"
    head = f"__kernel {group} void {entry_symbol(kernel.name)}({', '.join(parts)})"
    before = f"{declaration(kernel.signature)}\n{prelude}{vectors}{functions}"
    return f"{before}{head} {{\n{shared}\n#line {kernel._first_line}\n{body}\n}}\n"


_GLSL_PRELUDE = """\
#define kk_global_id(d) int(gl_GlobalInvocationID[d])
#define kk_local_id(d) int(gl_LocalInvocationID[d])
#define kk_group_id(d) int(gl_WorkGroupID[d])
#define kk_group_size(d) int(gl_WorkGroupSize[d])
#define kk_group_count(d) int(gl_NumWorkGroups[d])
#define kk_global_size(d) (kk_group_size(d) * kk_group_count(d))
#define kk_barrier() { memoryBarrierShared(); memoryBarrierBuffer(); barrier(); }
#define kk_fence() memoryBarrierBuffer()
#define kk_int(v) int(v)
#define kk_uint(v) uint(v)
#define kk_float(v) float(v)
#define kk_double(v) double(v)
#define kk_atomic_add(x, v) atomicAdd(x, v)
#define kk_atomic_sub(x, v) atomicAdd(x, -(v))
#define kk_atomic_min(x, v) atomicMin(x, v)
#define kk_atomic_max(x, v) atomicMax(x, v)
#define kk_atomic_and(x, v) atomicAnd(x, v)
#define kk_atomic_or(x, v) atomicOr(x, v)
#define kk_atomic_xor(x, v) atomicXor(x, v)
#define kk_atomic_exchange(x, v) atomicExchange(x, v)
#define kk_atomic_cas(x, e, v) atomicCompSwap(x, e, v)
#define fabs(x) abs(x)
#define fabsf(x) abs(x)
#define fmin(a, b) min(a, b)
#define fmax(a, b) max(a, b)
#define fminf(a, b) min(a, b)
#define fmaxf(a, b) max(a, b)
#define fmaf(a, b, c) fma(a, b, c)
#define sqrtf(x) sqrt(x)
#define expf(x) exp(x)
#define logf(x) log(x)
#define powf(a, b) pow(a, b)
#define sinf(x) sin(x)
#define cosf(x) cos(x)
#define tanhf(x) tanh(x)
#define floorf(x) floor(x)
#define rsqrt(x) inversesqrt(x)
"""


def _lower_glsl(kernel: PortableKernel, source: Source) -> Source:
    shared, body = kernel._split_body("shared")
    functions = kernel._functions("glsl")
    kinds = {p.dtype for p in kernel.signature.params or ()}
    helpers = _vectors(kernel.body + functions, "glsl") + _expressions(kernel, source, kernel.body, functions)
    if not kernel.nonnegative_remainders and any(
        "%" in text for text in (shared, functions, body, *source.macros.values())
    ):
        try:
            (shared, functions, body), macros, calls = with_c_remainders(
                (shared, functions, body), tuple(source.macros.items())
            )
        except ArgumentError as error:
            raise ArgumentError(f"kernel {kernel.name}: {error}") from None
        source = replace(source, defines=dict(macros))
        helpers += (FUNCTIONS + (FUNCTIONS_64 if kinds & {"i8", "u8"} else "")) if calls else ""
    lines = ["#version 430", declaration(kernel.signature)]
    if kinds & {"i8", "u8"}:
        lines.append("#extension GL_ARB_gpu_shader_int64 : require")
    if "kk_atomic_" in kernel.body + functions:
        lines.append("#extension GL_NV_shader_atomic_float : enable")
    x, y, z = kernel.signature.group or (1, 1, 1)
    lines.append(f"layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;")
    lines.append(_GLSL_PRELUDE + helpers)
    binding = 0
    scalars = []
    for p in kernel.signature.params or ():
        kind = DTYPES[p.dtype or ""][2]
        if p.kind == "scalar":
            scalars.append(f"{kind} {p.name};")
        else:
            access = {"r": "readonly ", "w": "writeonly ", "rw": ""}[p.access]
            lines.append(
                f"layout(std430, binding = {binding}) {access}buffer kk_block_{p.name} {{ {kind} {p.name}[]; }};"
            )
            binding += 1
    if scalars:
        # A block, not loose uniforms: block contents belong to the launch, loose uniforms to the program, and two
        # threads launching one program would overwrite each other's.
        lines.append(f"layout(std140, binding = 0) uniform kk_scalars {{ {' '.join(scalars)} }};")
    lines.append(shared)
    lines.append(functions)
    lines.append(f"void main() {{\n#line {kernel._first_line}\n{body}\n}}\n")
    return replace(source, text="\n".join(lines))
