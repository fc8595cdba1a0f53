"""What `gemm` does: checks, the choice of the template for a device, the launch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache as remembered
from typing import TYPE_CHECKING, Any

import numpy as np

from ...devices.array import Array
from ...errors import ArgumentError, VariantError
from ..operands import brought, device_of, given_back, target_for
from ..templates import check_rounds, plain_instead, tuned_kernel, way_of

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
        check_scalars={"alpha": -0.75, "beta": 0.5},
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
    device = device_of(cache)
    left, right = brought(device, a, "a", 2), brought(device, b, "b", 2)
    (m, k), (inner, n) = left.shape, right.shape
    if k != inner:
        raise ArgumentError(f"a is {m} × {k} and b is {inner} × {n}: the inner sizes differ")
    try:
        scale, keep = np.float32(alpha), np.float32(beta)
    except (TypeError, ValueError):
        raise ArgumentError(f"alpha and beta are numbers, not {alpha!r} and {beta!r}") from None
    target = target_for(device, out, (m, n), (left, right))
    if c is not None:
        _start_with(target, device, c, out, keep)
    elif keep and out is None:
        raise ArgumentError("with beta other than 0, gemm needs c")
    if m and n and k:
        problem = {"m": m, "n": n, "k": k}
        check_rounds(device, __package__, problem)
        arguments: dict[str, Any] = {"a": left, "b": right, "c": target, "alpha": scale, "beta": keep}
        try:
            tuned_for(device).run(cache, problem, explore=explore, deterministic=deterministic, **arguments)
        except VariantError as error:
            plain_instead(error, device, _tuned).run(cache, problem, deterministic=deterministic, **arguments)
    elif target.size:  # nothing to add up
        target.copy_from(keep * target.numpy() if keep else np.zeros((m, n), "f4"))
    return out if out is not None else given_back(target, a)


def _start_with(target: Array, device: Any, c: Any, out: Any, keep: np.float32) -> None:
    """Have `c` in the result's place, where it counts."""
    shape = getattr(c, "shape", None)
    if shape is not None and tuple(shape) != target.shape:
        raise ArgumentError(f"c has the shape {tuple(shape)}, and the product is {target.shape[0]} × {target.shape[1]}")
    if keep and c is not out:
        start = brought(device, c, "c", 2)
        if start.shape != target.shape:
            raise ArgumentError(f"c has the shape {start.shape}, and the product is {target.shape}")
        target.copy_from(start)
