"""C = alpha A B + beta C in float32, in the C that all backends share: row-major, any m, n, k ≥ 1.

No shared memory and no barrier: each work-item sums TM × TN elements of C. Neighbours in a group of GX take
neighbouring columns. llvmpipe, which runs 8 of them as one vector, loads each lane on its own; there nothing counts but
the number of loads for each multiplication, and blocks larger than the registers pay off. Indices are 32-bit: a matrix
has less than 2³¹ elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .params import PARAMS

__all__ = ["BODY", "DEFAULT", "PARAMS", "VALUES", "allowed", "constants", "grid", "group", "rounds"]

# llvmpipe ends the loops of a work-item, silently, after 65,535 rounds in all. Those over TM and TN are written out as
# long as blocks are no larger than 8 × 8; along k two steps are one round, so there k may be 131,071 at most.
BODY = """\
const int row0 = kk_global_id(1) * TM;
const int col0 = kk_group_id(0) * GX * TN + kk_local_id(0);
if (row0 < m && col0 < n) {
  // The last row and column stand in for those after them, which are not stored.
  int left[TM];
  int right[TN];
  float sum[TM * TN];
  for (int r = 0; r < TM; r++) left[r] = (row0 + r < m ? row0 + r : m - 1) * k;
  for (int q = 0; q < TN; q++) right[q] = col0 + q * GX < n ? col0 + q * GX : n - 1;
  for (int r = 0; r < TM; r++) {
    for (int q = 0; q < TN; q++) sum[r * TN + q] = 0.0f;
  }
  const int even = k - k % 2;
  for (int p0 = 0; p0 < even; p0 += 2) {
    for (int u = 0; u < 2; u++) {
      const int p = p0 + u;
      float x[TN];
      for (int q = 0; q < TN; q++) x[q] = b[p * n + right[q]];
      for (int r = 0; r < TM; r++) {
        const float y = a[left[r] + p];
        for (int q = 0; q < TN; q++) sum[r * TN + q] += y * x[q];
      }
    }
  }
  for (int r = 0; r < TM; r++) {
    for (int q = 0; q < TN; q++) {
      const int row = row0 + r;
      const int col = col0 + q * GX;
      if (row < m && col < n) {
        float value = sum[r * TN + q];
        if (even < k) value += a[left[r] + even] * b[even * n + col];
        value *= alpha;
        if (beta != 0.0f) value += beta * c[row * n + col];
        c[row * n + col] = value;
      }
    }
  }
}
"""

VALUES: dict[str, list[int]] = {
    "GX": [8, 64],
    "TM": [1, 2, 4, 8],
    "TN": [1, 2, 4, 8],
}

DEFAULT = {"GX": 8, "TM": 8, "TN": 4}


def allowed(v: Mapping[str, Any]) -> bool:
    """Blocks that are nearly square load least."""
    return v["TM"] in (v["TN"], 2 * v["TN"])


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """Nothing: one program serves all shapes."""
    return {}


def group(v: Mapping[str, Any]) -> int:
    """Work-items in a group."""
    return int(v["GX"])


def grid(v: Mapping[str, Any]) -> tuple[int, int]:
    """Groups that cover C."""
    return (-(-v["n"] // (v["GX"] * v["TN"])), -(-v["m"] // v["TM"]))


def rounds(problem: Mapping[str, Any]) -> int:
    """Rounds of loops in a work-item; llvmpipe ends after 65,535, and what is left is missing in C."""
    return int(problem["k"] // 2)
