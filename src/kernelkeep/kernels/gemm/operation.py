"""What `gemm` does: checks, the result's array, the launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...devices.array import Array
from ...errors import ArgumentError
from ..operands import device_of, like_input, output_array, to_device
from ..templates import KernelTemplates

if TYPE_CHECKING:
    from ...cache.program_cache import ProgramCache

TOLERANCE = 1e-5


def reference(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
    """The answer, with NumPy."""
    product = float(alpha) * (a @ b)
    return product if beta == 0 else product + float(beta) * c


def _work(problem: Mapping[str, Any]) -> float:
    return 2.0 * float(problem["m"] * problem["n"] * problem["k"])


GEMM = KernelTemplates(
    name="gemm",
    package=__package__,
    arrays={"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n")},
    scalars={"alpha": 1.0, "beta": 0.0},
    check_scalars={"alpha": -0.75, "beta": 0.5},
    reference=reference,
    tolerance=TOLERANCE,
    work=_work,
    example={"m": 4, "n": 4, "k": 4},
)


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
    """`gemm` with every option resolved to a value."""
    device = device_of(cache)
    left, right = to_device(device, a, "a", 2), to_device(device, b, "b", 2)
    (m, k), (inner, n) = left.shape, right.shape
    if k != inner:
        raise ArgumentError(f"a is {m} × {k} and b is {inner} × {n}: the inner sizes differ")
    try:
        scale, keep = np.float32(alpha), np.float32(beta)
    except (TypeError, ValueError):
        raise ArgumentError(f"alpha and beta must be numbers, got {alpha!r} and {beta!r}") from None
    target = output_array(device, out, (m, n), (left, right))
    if c is not None:
        _start_with(target, device, c, out, keep)
    elif keep and out is None:
        raise ArgumentError("with beta other than 0, gemm needs c")
    if m and n and k:
        problem = {"m": m, "n": n, "k": k}
        arguments = {"a": left, "b": right, "c": target, "alpha": scale, "beta": keep}
        GEMM.run(cache, problem, arguments, explore, deterministic)
    elif target.size:  # k is 0: an empty sum
        target.copy_from(keep * target.numpy() if keep else np.zeros((m, n), "f4"))
    return out if out is not None else like_input(target, a)


def _start_with(target: Array, device: Any, c: Any, out: Any, keep: np.float32) -> None:
    """Copy `c` to the result, where beta is not 0."""
    shape = getattr(c, "shape", None)
    if shape is not None and tuple(shape) != target.shape:
        raise ArgumentError(f"c has the shape {tuple(shape)}, and the product is {target.shape[0]} × {target.shape[1]}")
    if keep and c is not out:
        start = to_device(device, c, "c", 2)
        if start.shape != target.shape:
            raise ArgumentError(f"c has the shape {start.shape}, and the product is {target.shape}")
        target.copy_from(start)
