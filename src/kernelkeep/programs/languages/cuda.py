"""CUDA C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..kernel_parts import UnwrittenKernel, Written
from .base import Language

if TYPE_CHECKING:
    from ..task_program import TaskProgram


class _Cuda(Language):
    name = "cuda"
    title = "CUDA C"
    suffixes = (".cu",)
    kernel_mark = r"\b__global__\s+\w"

    has_system_headers = True
    handwritten_kernel = """\
{before}extern "C" __global__ void {name}(const {kind}* x, {kind}* y, {kind} a, int n) {{
int i = blockIdx.x * blockDim.x + threadIdx.x;
{statement}
}}
"""

    def write(self, kernel: UnwrittenKernel) -> Written:
        return kernel.written_in(self.name)

    def write_resident(self, program: TaskProgram) -> str:
        from .cuda_resident import resident_text

        return resident_text(program)

    # The clock begins when the first work-item of the slice looks. All begin with the same moment, whenever their group does.
    state_helpers = """\
#define KK_READ(x) kk_atomic_load(x)
#define KK_WRITE(x, v) kk_atomic_store(x, v)
#define KK_UNROLL kk_unroll(4)
#define KK_CHECK_LOOPS
#define KK_OVERRAN false
#define KK_MICROSECONDS() kk_uint(kk_clock() / 1000ull)
#define KK_BEGIN_CLOCK if (kkdeadline > 0 && KK_READ(kkcontrol[$BEGUN]) == 0u) \\
kk_atomic_cas(kkcontrol[$BEGUN], 0u, max(KK_MICROSECONDS(), 1u));
#define KK_IS_LATE (kkdeadline > 0 && kk_int(KK_MICROSECONDS() - KK_READ(kkcontrol[$BEGUN])) > kkdeadline)
#define KK_COUNT_LATE(n) if ((n) != 0u) kk_atomic_add(kkcontrol[$LATE], (n));
#define KK_LATE_TASKS kk_atomic_or(kkcontrol[$LATE], 0u)
#define KK_FORGET_CLOCK kkcontrol[$LATE] = 0u; kkcontrol[$BEGUN] = 0u;
"""


LANGUAGE = _Cuda()
