"""C = alpha A B + beta C for 16-bit floats with sums in float32, on Hopper's tensor cores; n and k are multiples of 8.

Its text, `tensor_half.cu`, is CUDA C: it multiplies tiles that lie in shared memory, and has them copied there whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..own_source import own_source
from .tensor_tiles import HOPPER, are_enough, count_groups, fits_alone

__all__ = ["BODY", "DEFAULT", "VALUES", "allowed", "constants", "default", "dynamic_shared_bytes", "grid", "group"]

BODY = replace(own_source(__file__, "gemm"), options=HOPPER)

BLOCK_M = 128
DEPTH = 64

VALUES: dict[str, list[int]] = {
    "BLOCK_N": [64, 128, 256],
    "STAGES": [4, 6, 8],
    "SLICES": [1, 2, 4, 8],
    "BAND": [4, 8, 16],
    "GROUPS": [78, 114, 132],
}

DEFAULT = {"BLOCK_N": 256, "STAGES": 4, "SLICES": 1, "BAND": 8, "GROUPS": 132}


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """Nothing: one program serves all shapes."""
    return {}


def dynamic_shared_bytes(v: Mapping[str, Any]) -> int:
    """Shared memory of a group: the stages, and what it takes to begin at a multiple of 1,024 bytes."""
    return int(2 * DEPTH * v["STAGES"] * (BLOCK_M + v["BLOCK_N"]) + 1024)


def allowed(v: Mapping[str, Any]) -> bool:
    """Whether one group fits on a multiprocessor, and no second; slices of a tile are for few tiles, in any order."""
    is_usual = v["SLICES"] <= v["BLOCK_N"] // 16 <= 8 and all(v[name] == DEFAULT[name] for name in ("BAND", "GROUPS"))
    return fits_alone(dynamic_shared_bytes(v)) and (v["SLICES"] == 1 or is_usual)


def group(v: Mapping[str, Any]) -> int:
    """Work-items in a group: one warp group copies, two multiply."""
    return 384


def grid(v: Mapping[str, Any]) -> int:
    """As many groups as run at once; each computes one tile after the other. Slices of a tile have a group each."""
    if v["SLICES"] > 1:
        return int(v["SLICES"] * -(-v["m"] // BLOCK_M) * -(-v["n"] // v["BLOCK_N"]))
    return count_groups(v["m"], v["n"], BLOCK_M, v["BLOCK_N"], v["GROUPS"])


def default(problem: Mapping[str, Any]) -> dict[str, int]:
    """A variant for a problem nobody has measured: smaller tiles where there would be too few large ones, and slices along k
    where there are still few."""
    for columns, stages in ((256, 4), (128, 6)):
        if are_enough(-(-problem["m"] // BLOCK_M) * -(-problem["n"] // columns), DEFAULT["GROUPS"]):
            return {**DEFAULT, "BLOCK_N": columns, "STAGES": stages}
    tiles = -(-problem["m"] // BLOCK_M) * -(-problem["n"] // 64)
    slices = 1 if problem["k"] < 2048 or 2 * tiles > DEFAULT["GROUPS"] else 4 if tiles <= 16 else 2
    return {**DEFAULT, "BLOCK_N": 64, "STAGES": 8, "SLICES": slices}
