"""CUDA C."""

from __future__ import annotations

from ..kernel_parts import UnwrittenKernel, Written
from .base import Language

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

    def write(self, kernel: UnwrittenKernel) -> Written:
        from ...language.writers import write

        return Written(*write(self.name, kernel.module, kernel.entry))

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
