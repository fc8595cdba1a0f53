"""CUDA C."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from .base import C_TYPES, Language, Pointers

if TYPE_CHECKING:
    from ..lowering import KernelParts
    from ..source import Source

_PRELUDE = """\
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
_IDS = {
    "kk_global_id": [f"blockIdx.{d} * blockDim.{d} + threadIdx.{d}" for d in "xyz"],
    "kk_local_id": [f"threadIdx.{d}" for d in "xyz"],
    "kk_group_id": [f"blockIdx.{d}" for d in "xyz"],
    "kk_group_size": [f"blockDim.{d}" for d in "xyz"],
    "kk_group_count": [f"gridDim.{d}" for d in "xyz"],
    "kk_global_size": [f"blockDim.{d} * gridDim.{d}" for d in "xyz"],
}


class _Cuda(Language):
    name = "cuda"
    title = "CUDA C"
    suffixes = (".cu",)

    has_system_headers = True
    handwritten_kernel = """\
{before}extern "C" __global__ void {name}(const {kind}* x, {kind}* y, {kind} a, int n) {{
int i = blockIdx.x * blockDim.x + threadIdx.x;
{statement}
}}
"""

    types = C_TYPES
    vector_helpers = """\
#define kk_unroll _Pragma("unroll")
typedef float4 kk_float4;
#define kk_make_float4(a, b, c, d) make_float4(a, b, c, d)
#define kk_load4(x, i) (*(const float4*)(&(x)[i]))
#define kk_store4(x, i, v) (*(float4*)(&(x)[i]) = (v))
"""
    helper_functions: ClassVar[Mapping[str, str]] = {
        name: f"__device__ inline int {name}(int d) {{ return (int)(d == 0 ? {x} : d == 1 ? {y} : {z}); }}\n"
        for name, (x, y, z) in _IDS.items()
    }
    # C, C++ and what CUDA adds. Built-in functions are not among them: a parameter `min` hides the function.
    reserved_words = frozenset(
        """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
        co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default
        delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int long main
        mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
        reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch template
        this thread_local throw true try typedef typeid typename typeof union unsigned using virtual void volatile wchar_t
        while xor xor_eq NULL threadIdx blockIdx blockDim gridDim warpSize""".split()
    )
    reserved_names = re.compile(r"M_(?:E|PI|LN|LOG|SQRT|[12]_)\w*\Z|(?:U?(?:CHAR|SHRT|INT|LONG)|FLT|DBL)_[A-Z0-9_]+\Z")

    def write(self, kernel: KernelParts) -> Source:
        from ..lowering import write_c

        x, y, z = kernel.group
        return write_c(
            kernel,
            prelude=_PRELUDE,
            head=f'extern "C" __global__ void __launch_bounds__({x * y * z})',
            buffer="",
            shared="__shared__ __align__(16)" if kernel.uses_vectors else "__shared__",
        )

    pointers = Pointers("__device__ inline void", "", "__restrict__")
    state_helpers = """\
typedef unsigned long long ulong_t;
#define KK_READ(x) (*(volatile uint*)&(x))
#define KK_WRITE(x, v) (*(volatile uint*)&(x) = (v))
#define KK_FENCE_SYSTEM() __threadfence_system()
#define KK_PAUSE() __nanosleep(2000)
#define KK_UNROLL _Pragma("unroll 4")
#define KK_CHECK_LOOPS
#define KK_OVERRAN false
__device__ inline ulong_t KK_CLOCK() { ulong_t t; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t)); return t; }
// Microseconds since the first work-item of the slice looked. All begin with the same moment, whenever their group does.
#define KK_MICROSECONDS() ((uint)(KK_CLOCK() / 1000ull))
#define KK_BEGIN_CLOCK if (kkdeadline > 0 && KK_READ(kkcontrol[$BEGUN]) == 0u) \
atomicCAS(&kkcontrol[$BEGUN], 0u, max(KK_MICROSECONDS(), 1u));
#define KK_IS_LATE (kkdeadline > 0 && (int)(KK_MICROSECONDS() - KK_READ(kkcontrol[$BEGUN])) > kkdeadline)
#define KK_COUNT_LATE(n) if ((n) != 0u) atomicAdd(&kkcontrol[$LATE], (n));
#define KK_LATE_TASKS atomicOr(&kkcontrol[$LATE], 0u)
#define KK_FORGET_CLOCK kkcontrol[$LATE] = 0u; kkcontrol[$BEGUN] = 0u;
__device__ inline void kk_grid_barrier_of(uint* control, uint meeting, uint groups) {
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    atomicAdd(&control[$ARRIVED], 1u);
    while (*(volatile uint*)&control[$ARRIVED] < meeting * groups) { }
    __threadfence();
  }
  __syncthreads();
}
"""


LANGUAGE = _Cuda()
