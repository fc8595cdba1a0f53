"""What `gemm` does: checks, the choice of the template for a device, the launch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache as remembered
from typing import TYPE_CHECKING, Any

import numpy as np

from ...devices.array import Array
from ...errors import ArgumentError
from ..operands import MOST_ELEMENTS, brought, given_back
from ..templates import check_rounds, tuned_kernel, way_of

if TYPE_CHECKING:
    from ...cache.program_cache import ProgramCache
    from ...variants.tuned import Tuned

__all__ = ["TOLERANCE", "reference", "run", "tuned_for"]

TOLERANCE = 1e-5


def reference(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
    """The answer, with NumPy."""
    product = float(alpha) * (a @ b)
    return product if beta == 0 else product + float(beta) * c


def tuned_for(device: Any) -> Tuned:
    """The tuned kernel for a kind of device."""
    return _tuned(way_of(device), device.capabilities.shared_bytes)


@remembered
def _tuned(way: str, most_shared_bytes: int) -> Tuned:
    return tuned_kernel(
        "gemm",
        way,
        __package__,
        most_shared_bytes,
        arrays={"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")},
        scalars={"alpha": 1.0, "beta": 0.0},
        reference=reference,
        tolerance=TOLERANCE,
        work=_work,
        example={"m": 4, "n": 4, "k": 4},
    )


def _work(problem: Mapping[str, Any]) -> float:
    return 2.0 * float(problem["m"] * problem["n"] * problem["k"])


def run(
    cache: ProgramCache,
    a: Any,
    b: Any,
    c: Any,
    alpha: float,
    beta: float,
    out: Any,
    explore: float | bool,
    deterministic: bool | None,
) -> Any:
    """`gemm`, with everything said."""
    device = cache.device
    left, right = brought(device, a, "a", 2), brought(device, b, "b", 2)
    (m, k), (inner, n) = left.shape, right.shape
    if k != inner:
        raise ArgumentError(f"a is {m} × {k} and b is {inner} × {n}: the inner sizes differ")
    if m * n > MOST_ELEMENTS:
        raise ArgumentError(f"the product has {m * n:,} elements; kernels count them with 32 bits")
    target = _target(device, out, c, beta, (m, n))
    if m and n and k:
        problem = {"m": m, "n": n, "k": k}
        check_rounds(device, __package__, problem)
        tuned_for(device).run(
            cache,
            problem,
            explore=explore,
            deterministic=deterministic,
            a=left,
            b=right,
            c=target,
            alpha=np.float32(alpha),
            beta=np.float32(beta),
        )
    elif target.size:  # nothing to add up
        target.copy_from(np.float32(beta) * target.numpy() if beta else np.zeros((m, n), "f4"))
    return out if out is not None else given_back(target, a)


def _target(device: Any, out: Any, c: Any, beta: float, shape: tuple[int, int]) -> Array:
    """Where the result goes, with `c` in it already where it counts."""
    if out is not None and not isinstance(out, Array):
        raise ArgumentError(f"out is a device array, not a {type(out).__name__}")
    if beta and c is None and out is None:
        raise ArgumentError("with beta other than 0, gemm needs c")
    target = device.recycled_empty(shape, "f4") if out is None else brought(device, out, "out", 2)
    if out is not None and target is not out:  # a copy, so that it begins where kernels can write four floats at once
        raise ArgumentError("out begins at an address that is no multiple of 16 bytes")
    if target.shape != shape:
        raise ArgumentError(f"out has the shape {target.shape}, and the product is {shape[0]} × {shape[1]}")
    if beta and c is not None and c is not out:
        start = brought(device, c, "c", 2)
        if start.shape != shape:
            raise ArgumentError(f"c has the shape {start.shape}, and the product is {shape[0]} × {shape[1]}")
        target.copy_from(start)
    return target
