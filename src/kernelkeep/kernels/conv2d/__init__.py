"""`conv2d`: two-dimensional convolution in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...cache.program_cache import ProgramCache
    from ..plan import Plan

__all__ = ["conv2d"]


class Conv2d:
    """`conv2d(cache, x, w)` and `conv2d.plan(cache, x, w)`."""

    __name__ = "conv2d"

    def __call__(
        self,
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

        `padding` is how many zeros surround the image: one number, one for rows and one for columns, "same" (the output is
        as large as the input; stride 1, odd filters) or "valid" (none). NumPy in, NumPy out; device arrays in, a device
        array out; DLPack (PyTorch, CuPy, JAX) in, the same kind out. `out` is a device array for the result. The result is
        within 1e-5 of the exact one, relative to the largest element (where all sums cancel: within 1e-6 of what they would
        be without signs).

        `explore`, a share of the time, tries other variants on real calls; `deterministic` ignores measurements.
        """
        if not explore:
            try:  # what a call with these shapes and options found
                ready = cache.memo["conv2d", x.shape, w.shape, padding, stride, deterministic]
            except (KeyError, AttributeError, TypeError):
                ready = None  # this is the first one, or something is wrong, which is found below
            # True and 1 are equal, and only 1 is a stride.
            if ready is not None and padding.__class__ is not bool and stride.__class__ is not bool:
                result = ready.run(cache, x, w, out)
                if result is not None:
                    return result
        from .operation import run

        return run(cache, x, w, padding, stride, out, explore, deterministic)

    def plan(
        self,
        cache: ProgramCache,
        x: Any,
        w: Any,
        padding: int | tuple[int, int] | str = 0,
        stride: int | tuple[int, int] = 1,
        *,
        out: Any = None,
        deterministic: bool | None = None,
    ) -> Plan:
        """The same as a prepared launch: `plan()` computes the convolution into `out`, and returns it.

        The arrays must be in the device's memory, and stay the same; what they hold may change from call to call. Without
        `out` there is a new one, `plan.out`. Everything is checked here, so a call costs little more than the driver's launch.
        """
        from .operation import plan

        return plan(cache, x, w, padding, stride, out, deterministic)

    def __repr__(self) -> str:
        return "<conv2d>"


conv2d = Conv2d()
