"""A task of a resident grid in CUDA C: a function that the grid's workers call together.

It differs from a kernel in what is around the body. Its block has more threads than workers, so positions and barriers are
those of the workers, and which block it is, of how many, is said by the grid.
"""

from __future__ import annotations

from typing import ClassVar

from .cuda import POSITIONS, CudaWriter

TASK_FUNCTION = "kk_run"


class CudaTaskWriter(CudaWriter):
    """Writes `kk_run`, which takes what the kernel would take."""

    restrict = ""  # another task may write what this one reads, so nothing may be kept from one task to the next
    barrier = "kk_workers_meet()"
    positions: ClassVar[dict[str, str]] = POSITIONS | {
        "kk_global_id": "kk_block_{0} * kk_threads_{0} + threadIdx.{0}",
        "kk_group_id": "kk_block_{0}",
        "kk_group_size": "kk_threads_{0}",
        "kk_group_count": "kk_blocks_{0}",
        "kk_global_size": "kk_threads_{0} * kk_blocks_{0}",
    }

    def head(self) -> None:
        """Nothing: it is no kernel of its own."""

    def kernel(self) -> None:
        self.line(f"static __device__ void {TASK_FUNCTION}({self.kernel_parameters()}) {{")
        self.kernel_body()
        self.line("}")
