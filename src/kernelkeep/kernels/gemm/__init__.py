"""`gemm`: the product of two matrices in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...cache.program_cache import ProgramCache

__all__ = ["gemm"]


def gemm(
    cache: ProgramCache,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    out: Any = None,
    explore: float | bool = 0.0,
    deterministic: bool | None = None,
) -> Any:
    """alpha · a @ b + beta · c, for row-major float32 matrices, with the fastest variant known for this device.

    NumPy in, NumPy out; device arrays in, a device array out; DLPack (PyTorch, CuPy, JAX) in, the same kind out. `out` is
    a device array for the result; it may be `c` itself. The result is within 1e-5 of the exact one, relative to the
    largest element (where all sums cancel: within 1e-6 of what they would be without signs).

    `explore`, a share of the time, tries other variants on real calls; `deterministic` ignores measurements.
    """
    from .operation import run

    return run(cache, a, b, c, alpha, beta, out, explore, deterministic)
