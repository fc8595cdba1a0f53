"""C = alpha A B + beta C in float32 for OpenCL on a CPU: row-major, any m, n, k ≥ 1.

A group is one work-item, for a CPU core one task: about MC rows × NC columns of C. It walks k in steps of about KC.
Each step copies its part of B to local memory, where it stays in the core's cache, then sums blocks of MR rows × NV
vectors of C in registers; rows of A are read where they are. Its text, `vectors.cl`, has wide vectors and pointers, so it is
no portable kernel.
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
    "grid",
    "group",
    "shared_bytes",
]

BODY = own_source(__file__, "gemm")

VALUES: dict[str, list[int]] = {
    "MR": [6, 12],
    "NV": [1, 2],
    "MC": [32, 64, 128, 256],
    "NC": [64, 128, 256],
    "KC": [96, 256],
}

DEFAULT = {"MR": 6, "NV": 1, "MC": 64, "NC": 128, "KC": 256}


def allowed(v: Mapping[str, Any]) -> bool:
    """Whether the sums just fill the registers: 6 × 1 for 16 of 8 floats, 12 × 1 for 32 of them, 12 × 2 for 32 of 16.

    Short steps are for drivers with no more than 32 KiB of local memory.
    """
    if v["KC"] == 96:
        return bool(v["NC"] == 64 and (v["MR"], v["NV"]) == (6, 1))
    return (v["MR"], v["NV"]) == (6, 1) or (v["MR"] == 12 and v["MC"] >= 64)


def shared_bytes(v: Mapping[str, Any]) -> int:
    """Local memory of a group."""
    return int(4 * v["KC"] * (v["NC"] + 16))


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """Nothing: one program serves all shapes."""
    return {}


def group(v: Mapping[str, Any]) -> int:
    """Work-items in a group."""
    return 1


def grid(v: Mapping[str, Any]) -> tuple[int, int]:
    """Groups that cover C."""
    return (-(-v["n"] // v["NC"]), -(-v["m"] // v["MC"]))
