"""C = alpha A B + beta C for 16-bit floats with sums in float32, on tensor cores from sm_80 on; n and k are multiples of 8.

Its text, `tensor_warps.cu`, is CUDA C: warps multiply small tiles that they hold in registers. On Hopper `tensor_half` is faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..own_source import own_source

__all__ = [
    "BODY",
    "DEFAULT",
    "VALUES",
    "allowed",
    "constants",
    "default",
    "dynamic_shared_bytes",
    "grid",
    "group",
    "shared_bytes",
]

BODY = own_source(__file__, "gemm")

DEPTH = 32

VALUES: dict[str, list[int]] = {
    "BLOCK_M": [64, 128],
    "BLOCK_N": [128, 256],
    "STAGES": [3, 4, 5],
    "BAND": [8],
}

DEFAULT = {"BLOCK_M": 128, "BLOCK_N": 128, "STAGES": 4, "BAND": 8}


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """Nothing: one program serves all shapes."""
    return {}


def dynamic_shared_bytes(v: Mapping[str, Any]) -> int:
    """Shared memory of a group."""
    return int(2 * DEPTH * v["STAGES"] * (v["BLOCK_M"] + v["BLOCK_N"]))


shared_bytes = dynamic_shared_bytes


def allowed(v: Mapping[str, Any]) -> bool:
    """Whether it is within the limits of all these GPUs."""
    return dynamic_shared_bytes(v) <= 99 * 1024


def group(v: Mapping[str, Any]) -> int:
    """Work-items in a group."""
    return 256


def grid(v: Mapping[str, Any]) -> int:
    """Groups that cover C."""
    return int(-(-v["m"] // v["BLOCK_M"]) * -(-v["n"] // v["BLOCK_N"]))


def default(problem: Mapping[str, Any]) -> dict[str, int]:
    """A variant for a problem nobody has measured: lower tiles where there would be few."""
    few = grid({**problem, **DEFAULT}) < 100
    return {**DEFAULT, "BLOCK_M": 64} if few else dict(DEFAULT)
