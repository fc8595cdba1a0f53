"""C = alpha A B + beta C for float32 on Hopper's tensor cores, which take TF32; n and k are multiples of 4.

TF32 has 11 of float32's 24 bits. Where SPLIT is 1, each number is the sum of two of them, and three products are added: float32's
precision in a third of TF32's speed. Where it is 0, the first of them is all there is. Its text, `tensor_single.cu`, is CUDA C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from ..own_source import own_source
from .params import PARAMS
from .tensor_tiles import HOPPER, are_enough, count_groups, fits_alone

DEPTH = 32
BLOCK_N = 128


def template(split: int) -> SimpleNamespace:
    """The template with full precision (1), or that of TF32 (0)."""
    values: dict[str, list[int]] = {
        "BLOCK_M": [64, 128] if split else [64, 128, 256],
        "STAGES": [4, 6, 8],
        "SLICES": [1, 2, 4, 8],
        "BAND": [4, 8, 16],
        "GROUPS": [78, 114, 132],
    }
    large = {"BLOCK_M": values["BLOCK_M"][-1], "STAGES": 4, "SLICES": 1, "BAND": 8, "GROUPS": 132}

    def dynamic_shared_bytes(v: Mapping[str, Any]) -> int:
        return int(4 * DEPTH * v["STAGES"] * ((1 + split) * v["BLOCK_M"] + BLOCK_N) + 1024)

    def allowed(v: Mapping[str, Any]) -> bool:
        is_usual = v["BLOCK_M"] <= 128 and v["BAND"] == large["BAND"] and v["GROUPS"] == large["GROUPS"]
        return fits_alone(dynamic_shared_bytes(v)) and (v["SLICES"] == 1 or is_usual)

    def grid(v: Mapping[str, Any]) -> int:
        if v["SLICES"] > 1:
            return int(v["SLICES"] * -(-v["m"] // v["BLOCK_M"]) * -(-v["n"] // BLOCK_N))
        return count_groups(v["m"], v["n"], v["BLOCK_M"], BLOCK_N, v["GROUPS"])

    def default(problem: Mapping[str, Any]) -> dict[str, int]:
        rows = next((r for r in reversed(values["BLOCK_M"]) if are_enough(_tiles(problem, r), large["GROUPS"])), 64)
        stages = next(s for s in (8, 6, 4) if fits_alone(dynamic_shared_bytes({"BLOCK_M": rows, "STAGES": s})))
        # As measured on an H200: clusters of more than two groups find no place as soon.
        few = 2 * _tiles(problem, rows) <= large["GROUPS"] and problem["k"] >= (512 if split else 2048)
        return {**large, "BLOCK_M": rows, "STAGES": stages, "SLICES": 2 if few and rows == 64 else 1}

    return SimpleNamespace(
        BODY=replace(own_source(__file__, "gemm"), options=HOPPER, defines={"SPLIT": split}),
        PARAMS=PARAMS,
        VALUES=values,
        DEFAULT=large,
        constants=lambda problem: {},
        dynamic_shared_bytes=dynamic_shared_bytes,
        allowed=allowed,
        group=lambda v: 512 if split else 384,
        grid=grid,
        default=default,
    )


def _tiles(problem: Mapping[str, Any], rows: int) -> int:
    return int(-(-problem["m"] // rows) * -(-problem["n"] // BLOCK_N))
