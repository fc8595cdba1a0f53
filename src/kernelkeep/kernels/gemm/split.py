"""C = alpha·A·B + beta·C in float32 for CUDA devices with clusters: small C, long k.

The text is that of *tiled*. SPLIT groups form a cluster: they share a tile of C, each walks along its part of k, and in the end
each adds up and writes a part of the tile, reading the others' sums from their shared memory. So a C of few tiles keeps more of
the device busy, without a second launch and without atomic additions: the order of the sums is always the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..own_source import own_source
from . import tiled
from .params import PARAMS

__all__ = ["BODY", "DEFAULT", "PARAMS", "VALUES", "allowed", "constants", "grid", "group", "shared_bytes"]

VALUES: dict[str, list[int]] = {**tiled.VALUES, "BUFFERS": [1], "SPLIT": [2, 4, 8]}
DEFAULT = {"BLOCK_M": 64, "BLOCK_N": 64, "ITEM_M": 8, "ITEM_N": 8, "DEPTH": 32, "SLICES": 4, "BUFFERS": 1, "SPLIT": 2}

constants, group, shared_bytes, allowed = tiled.constants, tiled.group, tiled.shared_bytes, tiled.allowed


def grid(v: Mapping[str, Any]) -> tuple[int, int, int]:
    """Groups that cover C, SPLIT for each tile."""
    return (*tiled.grid(v), v["SPLIT"])


_CHANGES = (
    (
        "int steps = (k + DEPTH - 1) / DEPTH;",
        "int all_steps = (k + DEPTH - 1) / DEPTH;\n"
        "int first_step = all_steps * rank / SPLIT;\n"
        "int steps = all_steps * (rank + 1) / SPLIT - first_step;",
    ),
    ("int ahead = (step + 1) * DEPTH;", "int ahead = (first_step + step + 1) * DEPTH;"),
    (
        "    kk_barrier();\n#if VECTOR_N == 4\n    kk_unroll for (int round",
        "    cluster_barrier();\n#if VECTOR_N == 4\n    kk_unroll for (int round",
    ),
    ("round < ROUNDS; round++", "round < (ROUNDS + SPLIT - 1) / SPLIT; round++"),
    (
        "round < (DOWN * BLOCK_N + ITEMS - 1) / ITEMS; round++",
        "round < (DOWN * BLOCK_N + ITEMS * SPLIT - 1) / (ITEMS * SPLIT); round++",
    ),
    ("        int e = item + round * ITEMS;\n", "        int e = item + (round * SPLIT + rank) * ITEMS;\n"),
    (
        "            kk_float4 sum = kk_load4(tile, place + e * 4);\n",
        "            kk_float4 sum = load4_from(in_group(&tile[place + e * 4], 0));\n",
    ),
    (
        "            kk_unroll for (int other = 1; other < SLICES; other++) {\n"
        "                kk_float4 more = kk_load4(tile, place + other * DOWN * BLOCK_N + e * 4);\n",
        "            kk_unroll for (int other = 1; other < SLICES * SPLIT; other++) {\n"
        "                const float *own = &tile[place + other % SLICES * DOWN * BLOCK_N + e * 4];\n"
        "                kk_float4 more = load4_from(in_group(own, other / SLICES));\n",
    ),
    (
        "            float sum = tile[place + e];\n"
        "            kk_unroll for (int other = 1; other < SLICES; other++) sum += tile[place + other * DOWN * BLOCK_N + e];\n",
        "            float sum = load_from(in_group(&tile[place + e], 0));\n"
        "            kk_unroll for (int other = 1; other < SLICES * SPLIT; other++) {\n"
        "                sum += load_from(in_group(&tile[place + other % SLICES * DOWN * BLOCK_N + e], other / SLICES));\n"
        "            }\n",
    ),
)


def _written() -> str:
    text = tiled.BODY
    for old, new in _CHANGES:
        if old not in text:
            raise AssertionError(f"the text of the tiled template no longer has {old!r}")
        text = text.replace(old, new)
    return text


_OWN = own_source(__file__, "gemm")
BODY = replace(_OWN, text=_OWN.text.replace("// TILED\n", _written()))
