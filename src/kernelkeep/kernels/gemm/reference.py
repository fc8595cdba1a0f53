"""What `gemm` computes, with NumPy, and how much there is to compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def reference(a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
    """The answer."""
    product = float(alpha) * (a @ b)
    return product if beta == 0 else product + float(beta) * c


def work(problem: Mapping[str, Any]) -> float:
    """Multiplications and additions."""
    return 2.0 * float(problem["m"] * problem["n"] * problem["k"])
