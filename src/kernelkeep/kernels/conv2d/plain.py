"""2-D convolution in float32 (cross-correlation, NCHW), any kernel size, stride and zero padding, in the C that all
backends share.

No shared memory and no barrier: each work-item sums TM output channels × TN pixels of one image, neighbours in a group
of GX neighbouring pixels. As in `gemm/plain.py`, blocks larger than the registers pay off on llvmpipe, and indices are
32-bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..gemm.plain import DEFAULT, VALUES, allowed, group
from .params import PARAMS, filter_constants

__all__ = ["BODY", "DEFAULT", "PARAMS", "VALUES", "allowed", "constants", "grid", "group", "rounds"]

# llvmpipe ends the loops of a work-item, silently, after 65,535 rounds in all: there c · KERNEL_H · KERNEL_W, the one
# loop that is not written out, may be no more.
BODY = """\
const int taps = c * KERNEL_H * KERNEL_W;
const int pixels = oh * ow;
const int row0 = kk_group_id(1) * TM;
const int col0 = kk_group_id(0) * GX * TN + kk_local_id(0);
if (col0 < pixels) {
  // The last channel and pixel stand in for those after them, which are not stored.
  int left[TM];
  int top_y[TN];
  int top_x[TN];
  float sum[TM * TN];
  for (int r = 0; r < TM; r++) left[r] = (row0 + r < k ? row0 + r : k - 1) * taps;
  for (int q = 0; q < TN; q++) {
    const int pixel = col0 + q * GX < pixels ? col0 + q * GX : pixels - 1;
    top_y[q] = pixel / ow * STRIDE_Y - pad_y;
    top_x[q] = pixel % ow * STRIDE_X - pad_x;
  }
  for (int r = 0; r < TM; r++) {
    for (int q = 0; q < TN; q++) sum[r * TN + q] = 0.0f;
  }

  int plane = kk_group_id(2) * c * h * w;
  int tap_y = 0;
  int tap_x = 0;
  for (int t = 0; t < taps; t++) {
    float v[TN];
    for (int q = 0; q < TN; q++) {
      const int iy = top_y[q] + tap_y;
      const int ix = top_x[q] + tap_x;
      const int at = iy >= 0 && iy < h && ix >= 0 && ix < w ? plane + iy * w + ix : -1;
      v[q] = at >= 0 ? x[at] : 0.0f;
    }
    for (int r = 0; r < TM; r++) {
      const float u = weights[left[r] + t];
      for (int q = 0; q < TN; q++) sum[r * TN + q] += u * v[q];
    }
    tap_x++;
    if (tap_x == KERNEL_W) {
      tap_x = 0;
      tap_y++;
    }
    if (tap_y == KERNEL_H) {
      tap_y = 0;
      plane += h * w;
    }
  }
  for (int r = 0; r < TM; r++) {
    for (int q = 0; q < TN; q++) {
      if (row0 + r < k && col0 + q * GX < pixels) {
        y[(kk_group_id(2) * k + row0 + r) * pixels + col0 + q * GX] = sum[r * TN + q];
      }
    }
  }
}
"""


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """The filter's size and the strides."""
    return filter_constants(problem)


def grid(v: Mapping[str, Any]) -> tuple[int, int, int]:
    """Groups that cover the outputs: pixels, output channels, images."""
    return (-(-v["oh"] * v["ow"] // (v["GX"] * v["TN"])), -(-v["k"] // v["TM"]), v["n"])


def rounds(problem: Mapping[str, Any]) -> int:
    """Rounds of loops in a work-item; llvmpipe ends after 65,535, and what is left is missing in the sums."""
    return int(problem["c"] * problem["r"] * problem["s"])
