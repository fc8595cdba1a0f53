"""One kernel body for every backend.

A `PortableKernel` is typed parameters and a C-like body. `source(device)` lowers it to CUDA C, OpenCL C or GLSL 4.30.
The body is the part of C the three share, plus:

    kk_global_id(d) kk_local_id(d) kk_group_id(d)        where am I, d = 0, 1 or 2; all of type int
    kk_group_size(d) kk_group_count(d) kk_global_size(d)
    kk_barrier()                                         all of the group has arrived, and sees each other's writes
    kk_fence()                                           what was written before is seen by all before what comes after
    kk_shared(float, tile, 16, 17);                      an array the group shares: tile[16][17];
                                                         sizes may be macros `defines` has or the body begins with
    kk_atomic_add(x[i], v)  sub min max and or xor exchange, kk_atomic_cas(x[i], expected, v)
                                                         on elements, not pointers; returns the old value
    kk_int(v) kk_uint(v) kk_float(v) kk_double(v)        conversions ("(int)v" is not GLSL, "int(v)" is not OpenCL C)
    kk_float4 v = kk_make_float4(a, b, c, d);            four floats, v.x v.y v.z v.w
    kk_load4(x, i)  kk_store4(x, i, v)                   elements i … i+3 of a float buffer or one-dimensional shared
                                                         array in one access; i is a multiple of 4
    kk_unroll                                            before a `for` of constant length: write out its rounds, so
                                                         that the arrays it indexes can live in registers

A buffer that is a view into another must start at a multiple of 16 bytes for kk_load4 and kk_store4.

Two habits keep a body portable: conditions are comparisons (`if (n != 0)`), and helper math goes by its OpenCL name
(`fabs`, `fmin`, `sqrt`, `exp`, `pow`, `fma`, …; the C names with f, `sqrtf`, work too).

The body is put behind a `#line 1`, so a compiler's complaint names the line of the body the user wrote.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import ArgumentError, Unsupported
from .signature import DTYPES, KernelSignature, Parameter, declaration
from .source import Source

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Buffer", "PortableKernel", "Scalar"]

_NAME = re.compile(r"[A-Za-z_]\w*\Z")
# Words that mean something in one of the languages and would break there only.
_RESERVED = frozenset(
    """auto bool break buffer case char class const constant continue default delete do double else enum extern false
    float for global goto half if image2D in inout input int kernel layout local long main namespace new out output
    private restrict return sampler2D shared short signed sizeof static struct switch template this true typedef uint
    uniform union unsigned using varying vec2 vec3 vec4 void volatile while sample filter common partition active""".split()
)
_SHARED = re.compile(r"\bkk_shared\s*\(\s*(\w+)\s*,\s*(\w+)\s*,([^;]*)\)\s*;")
# What a body begins with before any code: macros, comments, empty lines.
_TOP = re.compile(r"(?:[ \t]*(?:#(?:[^\n\\]|\\\n|\\.)*|//[^\n]*)?\n)*")
_ATOMIC = re.compile(r"\bkk_atomic_(\w+)\s*\(\s*(\w+)")
_INTEGER_ONLY: dict[str, tuple[str, ...]] = {"cuda": ("and", "or", "xor", "cas"), "opencl": ("and", "or", "xor", "cas")}
_INTEGER_ONLY["glsl"] = (*_INTEGER_ONLY["cuda"], "min", "max")
_SHARED_TYPES = {"float": "f4", "double": "f8", "int": "i4", "uint": "u4"}


class _Capable(Protocol):
    @property
    def float_atomics(self) -> bool: ...
    @property
    def float64(self) -> bool: ...
    @property
    def int64(self) -> bool: ...
    @property
    def int8(self) -> bool: ...
    @property
    def max_group_items(self) -> int: ...


class _Target(Protocol):
    """What lowering needs to know of a device."""

    @property
    def language(self) -> str: ...
    @property
    def capabilities(self) -> _Capable: ...


@dataclass(frozen=True)
class Buffer:
    """A device array the kernel reads ("r"), writes ("w") or both ("rw")."""

    name: str
    dtype: str
    access: str = "rw"

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _check_parameter(self.name, self.dtype))
        if self.access not in ("r", "w", "rw"):
            raise ArgumentError(f"access of buffer {self.name} is 'r', 'w' or 'rw', not {self.access!r}")


@dataclass(frozen=True)
class Scalar:
    """A single value passed with each launch."""

    name: str
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _check_parameter(self.name, self.dtype))


def _check_parameter(name: str, dtype: Any) -> str:
    """The dtype's short name; NumPy's other ways to say it (np.float32, "float32") are understood too."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise ArgumentError(f"{name!r} is not a parameter name")
    if name in _RESERVED or name.startswith(("kk_", "gl_", "__")):
        raise ArgumentError(f"the parameter name {name} is reserved in CUDA C, OpenCL C or GLSL")
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    import numpy as np

    try:
        short = "" if dtype is None else str(np.dtype(dtype).str[1:])  # NumPy takes None for float64
    except (TypeError, ValueError, SyntaxError):
        short = ""
    if short not in DTYPES:
        raise ArgumentError(f"dtype {dtype!r} of parameter {name} is not one of {', '.join(DTYPES)}")
    return short


@dataclass(frozen=True, eq=False)
class PortableKernel:
    """Typed parameters and one body, lowered to the language of each device.

    `group` is the number of work-items in a group, fixed at compile time on every backend: an int or up to three.
    """

    name: str
    params: Sequence[Buffer | Scalar]
    body: str
    group: int | tuple[int, ...] = 256
    defines: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.match(self.name) or self.name in _RESERVED:
            raise ArgumentError(f"{self.name!r} cannot name a kernel in every language")
        if isinstance(self.params, str) or not isinstance(self.params, Iterable):
            raise ArgumentError(f"params of kernel {self.name} is a list of kk.Buffer and kk.Scalar")
        for param in self.params:
            if not isinstance(param, Buffer | Scalar):
                raise ArgumentError(f"params of kernel {self.name} are kk.Buffer or kk.Scalar, not {param!r}")
        if not isinstance(self.body, str):
            raise ArgumentError(f"the body of kernel {self.name} is a str, not {type(self.body).__name__}")
        if isinstance(self.options, str):
            raise ArgumentError(f"options of kernel {self.name} is a sequence of separate options")
        if re.search(r"\bkk_shared\b(?!\s*\()", self.body):
            raise ArgumentError(f"kernel {self.name}: a shared array is written kk_shared(float, tile, 16);")
        if re.search(r"\bkk_atomic_\w+\s*\(\s*&", self.body):
            raise ArgumentError(f"kernel {self.name}: atomics take an element, kk_atomic_add(x[i], v), not its address")
        names = [param.name for param in self.params]
        for name in names:
            if names.count(name) > 1:
                raise ArgumentError(f"kernel {self.name} has two parameters named {name}")
        group = tuple(self.group) if isinstance(self.group, tuple | list) else (self.group,)
        if not 1 <= len(group) <= 3 or any(not isinstance(n, int) or n < 1 for n in group):
            raise ArgumentError(f"group of kernel {self.name} is one to three positive integers, not {self.group!r}")
        object.__setattr__(self, "params", tuple(self.params))
        object.__setattr__(self, "_sources", {})

    @property
    def signature(self) -> KernelSignature:
        """What the kernel takes, the same on every backend."""
        group = (self.group,) if isinstance(self.group, int) else tuple(self.group)
        x, y, z = (*group, 1, 1)[:3]
        params = tuple(
            Parameter(p.name, "buffer", p.dtype, p.access)
            if isinstance(p, Buffer)
            else Parameter(p.name, "scalar", p.dtype, "r", DTYPES[p.dtype][0])
            for p in self.params
        )
        return KernelSignature(self.name, params, (x, y, z))

    def source(self, device: _Target) -> Source:
        """This kernel in the language of `device`. Raises `Unsupported` where the device lacks what it uses."""
        language, capabilities = device.language, device.capabilities
        self._require(language, capabilities)
        # The same Source each time, so that a cache finds its program without hashing anything.
        sources: dict[str, Source] = self.__dict__["_sources"]
        if language not in sources:
            text, options = _LOWER[language](self), tuple(self.options)
            sources[language] = Source(text, name=self.name, language=language, options=options, defines=self.defines)
        return sources[language]

    def _require(self, language: str, capabilities: _Capable) -> None:
        items = math.prod(self.signature.group or (1,))
        if items > capabilities.max_group_items:
            most = f"this device takes at most {capabilities.max_group_items}"
            raise ArgumentError(f"kernel {self.name} has groups of {items} work-items, and {most}")
        shared = {name: _SHARED_TYPES.get(kind, "i4") for kind, name, _ in _SHARED.findall(self.body)}
        kinds = {p.name: p.dtype for p in self.params} | shared
        for dtype in kinds.values():
            if dtype == "f8" and not capabilities.float64:
                raise Unsupported("float64", f"kernel {self.name} uses f8, and this device has no float64")
            if dtype in ("i8", "u8") and not capabilities.int64:
                raise Unsupported("int64", f"kernel {self.name} uses {dtype}, and this device has no int64")
            if DTYPES[dtype][2] is None and not capabilities.int8:
                raise Unsupported("int8", f"kernel {self.name} uses {dtype}, and {language} has no 8- and 16-bit types")
        for operation, target in _ATOMIC.findall(self.body):
            if kinds.get(target) != "f4":
                continue
            if not capabilities.float_atomics or operation in _INTEGER_ONLY[language]:
                message = f"kernel {self.name} uses kk_atomic_{operation} on float {target}, which this device lacks"
                raise Unsupported("float_atomics", message)

    @property
    def _first_line(self) -> int:
        """The number of the body's first line, as compilers name it."""
        return 1

    def _functions(self, language: str) -> str:
        """Functions that the body calls, in a language; for kernels that are generated."""
        return ""

    def _split_body(self, qualifier: str) -> tuple[str, str]:
        """The declarations of shared arrays, and the body without them, its line numbers kept."""
        declarations = []
        for kind, name, sizes in _SHARED.findall(self.body):
            dimensions = "".join(f"[{size.strip()}]" for size in sizes.split(","))
            declarations.append(f"{qualifier} {kind} {name}{dimensions};")
        body = _SHARED.sub(_line_breaks, self.body)
        if declarations and (top := _TOP.match(body)) and "#" in top.group():
            # The sizes may be macros that the body defines first, so these go along.
            declarations.insert(0, top.group().strip())
            body = _TOP.sub(_line_breaks, body, count=1)
        return "\n".join(declarations), body


def _line_breaks(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n")


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


def _vectors(kernel: PortableKernel, language: str) -> str:
    return _VECTORS[language] if _VECTOR.search(kernel.body) else ""


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


def _lower_cuda(kernel: PortableKernel) -> str:
    vectors = _vectors(kernel, "cuda")
    shared, body = kernel._split_body("__shared__ __align__(16)" if vectors else "__shared__")
    parts = []
    for p in kernel.params:
        kind = DTYPES[p.dtype][1]
        if isinstance(p, Scalar):
            parts.append(f"const {kind} {p.name}")
        else:
            parts.append(f"{'const ' if p.access == 'r' else ''}{kind}* {p.name}")
    x, y, z = kernel.signature.group or (1, 1, 1)
    head = f'extern "C" __global__ void __launch_bounds__({x * y * z}) {kernel.name}({", ".join(parts)})'
    before = f"{declaration(kernel.signature)}\n{_CUDA_PRELUDE}{vectors}{kernel._functions('cuda')}"
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


def _lower_opencl(kernel: PortableKernel) -> str:
    vectors = _vectors(kernel, "opencl")
    shared, body = kernel._split_body("__local __attribute__((aligned(16)))" if vectors else "__local")
    parts = []
    for p in kernel.params:
        kind = {"i8": "long", "u8": "ulong", "i1": "char"}.get(p.dtype, DTYPES[p.dtype][1])
        if isinstance(p, Scalar):
            parts.append(f"const {kind} {p.name}")
        else:
            parts.append(f"__global {'const ' if p.access == 'r' else ''}{kind}* {p.name}")
    x, y, z = kernel.signature.group or (1, 1, 1)
    functions = kernel._functions("opencl")
    prelude = (
        _opencl_prelude()
        if "kk_atomic_" in kernel.body + functions
        else _opencl_prelude().split("#define kk_atomic_")[0]
    )
    head = f"__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) void {kernel.name}({', '.join(parts)})"
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


def _lower_glsl(kernel: PortableKernel) -> str:
    shared, body = kernel._split_body("shared")
    kinds = {p.dtype for p in kernel.params}
    lines = ["#version 430", declaration(kernel.signature)]
    if kinds & {"i8", "u8"}:
        lines.append("#extension GL_ARB_gpu_shader_int64 : require")
    functions = kernel._functions("glsl")
    if "kk_atomic_" in kernel.body + functions:
        lines.append("#extension GL_NV_shader_atomic_float : enable")
    x, y, z = kernel.signature.group or (1, 1, 1)
    lines.append(f"layout(local_size_x = {x}, local_size_y = {y}, local_size_z = {z}) in;")
    lines.append(_GLSL_PRELUDE + _vectors(kernel, "glsl"))
    binding = 0
    scalars = []
    for p in kernel.params:
        kind = DTYPES[p.dtype][2]
        if isinstance(p, Scalar):
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
    return "\n".join(lines)


_LOWER: dict[str, Callable[[PortableKernel], str]] = {
    "cuda": _lower_cuda,
    "opencl": _lower_opencl,
    "glsl": _lower_glsl,
}
