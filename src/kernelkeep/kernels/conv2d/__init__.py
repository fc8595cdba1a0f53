"""`conv2d`: two-dimensional convolution in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...cache.program_cache import ProgramCache

__all__ = ["conv2d"]


def conv2d(
    cache: ProgramCache,
    x: Any,
    w: Any,
    padding: int | tuple[int, int] | str = 0,
    stride: int | tuple[int, int] = 1,
    *,
    out: Any = None,
    explore: float | bool = 0.0,
    deterministic: bool | None = None,
) -> Any:
    """The convolution of images x [n, c, h, w] with filters w [k, c, r, s], as in neural networks (the filter is not
    flipped), in float32, with the fastest variant known for this device.

    `padding` is how many zeros surround the image: one number, one for rows and one for columns, "same" (the output is as
    large as the input; stride 1, odd filters) or "valid" (none). NumPy in, NumPy out; device arrays in, a device array
    out; DLPack (PyTorch, CuPy, JAX) in, the same kind out. `out` is a device array for the result. The result is within
    1e-5 of the exact one, relative to the largest element (where all sums cancel: within 1e-6 of what they would be
    without signs).

    `explore`, a share of the time, tries other variants on real calls; `deterministic` ignores measurements.
    """
    from .operation import run

    return run(cache, x, w, padding, stride, out, explore, deterministic)
