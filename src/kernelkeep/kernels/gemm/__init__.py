"""`gemm`: the product of two matrices of float32, half or bfloat16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...cache.program_cache import ProgramCache
    from ..plan import Plan

__all__ = ["gemm"]


class Gemm:
    """`gemm(cache, a, b)` and `gemm.plan(cache, a, b)`."""

    __name__ = "gemm"

    def __call__(
        self,
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
        tf32: bool = False,
        dtype: str | None = None,
    ) -> Any:
        """alpha · a @ b + beta · c, for row-major matrices of one type, with the fastest variant known for this device.

        NumPy in, NumPy out; device arrays in, a device array out; DLPack (PyTorch, CuPy, JAX) in, the same kind out. `out`
        is a device array for the result; it may be `c` itself. The result is within 1e-5 of the exact one, relative to the
        largest element (where all sums cancel: within 1e-6 of what they would be without signs).

        Matrices of float16 or bfloat16 give a result of their type; products are summed in float32. NumPy has no bfloat16:
        with `dtype="bfloat16"` arrays of uint16 hold its words. `tf32` allows float32 operands to be cut to 11 bits, within
        2e-3, where the device has faster units for that; elsewhere it changes nothing.

        `explore`, a share of the time, tries other variants on real calls; `deterministic` ignores measurements.
        """
        if c is None and not explore:
            try:  # what a call with these shapes and options found
                ready = cache.memo["gemm", a.shape, b.shape, alpha, beta, out is None, deterministic, tf32, dtype]
            except (KeyError, AttributeError, TypeError):
                ready = None  # this is the first one, or something is wrong, which is found below
            if ready is not None:
                result = ready.run(cache, a, b, out)
                if result is not None:
                    return result
        from .operation import run

        return run(cache, a, b, c, alpha, beta, out, explore, deterministic, tf32, dtype)

    def plan(
        self,
        cache: ProgramCache,
        a: Any,
        b: Any,
        out: Any = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        deterministic: bool | None = None,
        tf32: bool = False,
        dtype: str | None = None,
    ) -> Plan:
        """The same as a prepared launch: `plan()` computes out = alpha · a @ b + beta · out, and returns `out`.

        The arrays must be in the device's memory, and stay the same; what they hold may change from call to call. Without
        `out` there is a new one, `plan.out`. Everything is checked here, so a call costs little more than the driver's launch.
        """
        from .operation import plan

        return plan(cache, a, b, out, alpha, beta, deterministic, tf32, dtype)

    def __repr__(self) -> str:
        return "<gemm>"


gemm = Gemm()
