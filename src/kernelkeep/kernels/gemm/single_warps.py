"""C = alpha A B + beta C for float32 on tensor cores, for any m, n and k: few rows or columns, odd sizes, long sums.

Each number is split into two of TF32's, and three products are added: float32's precision. Unlike `tensor_single`, rows may begin
anywhere, tiles may be small, and several groups sit on a multiprocessor. Up to eight groups, a cluster, share a tile of C and
split k among them. Its text, `single_warps.cu`, is CUDA C.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..own_source import own_source
from .params import PARAMS

__all__ = [
    "BODY",
    "DEFAULT",
    "PARAMS",
    "VALUES",
    "allowed",
    "constants",
    "dynamic_shared_bytes",
    "grid",
    "group",
    "shared_bytes",
]

BODY = own_source(__file__, "gemm")

VALUES: dict[str, list[int]] = {
    "BLOCK_M": [16, 32, 64, 128],
    "BLOCK_N": [16, 32, 64, 128],
    "DEPTH": [32, 64],
    "STAGES": [3, 4],
    "SLICES": [1, 2, 4, 8],
}

DEFAULT = {"BLOCK_M": 64, "BLOCK_N": 64, "DEPTH": 32, "STAGES": 3, "SLICES": 4}

_MOST_BYTES = 113 * 1024  # of a group: two fit on a multiprocessor


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """How many floats one access to A (rows of k) and to B and C (rows of n) may take."""
    return {"VECTOR_K": _widest(problem["k"]), "VECTOR_N": _widest(problem["n"])}


def _widest(size: int) -> int:
    return 4 if size % 4 == 0 else 2 if size % 2 == 0 else 1


def group(v: Mapping[str, Any]) -> int:
    """Work-items in a group."""
    return 256 if v["BLOCK_M"] * v["BLOCK_N"] >= 8192 else 128


def grid(v: Mapping[str, Any]) -> int:
    """Groups: a cluster for every tile of C."""
    return int(v["SLICES"] * -(-v["m"] // v["BLOCK_M"]) * -(-v["n"] // v["BLOCK_N"]))


def dynamic_shared_bytes(v: Mapping[str, Any]) -> int:
    """Shared memory of a group: the pieces of A and B; later a tile's sums, which need less."""
    return int(4 * v["STAGES"] * (v["BLOCK_M"] * (v["DEPTH"] + 8) + v["DEPTH"] * (v["BLOCK_N"] + 4)))


shared_bytes = dynamic_shared_bytes


def allowed(v: Mapping[str, Any]) -> bool:
    """Whether all warps have a part of the tile, and groups fit on a multiprocessor; deep pieces are for narrow tiles."""
    low, narrow = v["BLOCK_M"], v["BLOCK_N"]
    return bool(
        dynamic_shared_bytes(v) <= _MOST_BYTES
        and (low > 16 or narrow >= 32)
        and (narrow > 16 or low >= 64)
        and (v["DEPTH"] == 32 or low * narrow <= 2048)
    )
