"""2-D convolution in float32 (cross-correlation, NCHW) for OpenCL on a CPU: any kernel size, stride and zero padding.

It is the product of `gemm/vectors.py`: weights (a row per output channel) times a matrix with a column per output pixel
and a row per tap, that is per input channel and place in the kernel. A group gathers only the part of that matrix it
needs, about NC pixels and KC taps at a time, for about MC output channels of one image. Strides and zero padding are a
matter of gathering alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...programs.portable import Buffer
from ..gemm.vectors import DEFAULT, HEAD, PRODUCT, VALUES, allowed, group, shared_bytes
from .params import PARAMS as _PARAMS
from .params import filter_constants

__all__ = ["BODY", "DEFAULT", "PARAMS", "VALUES", "allowed", "constants", "grid", "group", "shared_bytes"]

# Sums of one part of the taps are added to those before, so the result is read, too.
PARAMS = tuple(Buffer("y", "f4", "rw") if param.name == "y" else param for param in _PARAMS)

BODY = f"""\
{HEAD}
const float alpha = 1.0f;
const int taps = c * KERNEL_H * KERNEL_W;
const int pixels = oh * ow;
const int most_rows = SHARE(k, kk_group_count(1), MR);
const int most_cols = SHARE(pixels, kk_group_count(0), NR);
const int row0 = kk_group_id(1) * most_rows;
const int col0 = kk_group_id(0) * most_cols;
const int rows = LESSER(most_rows, k - row0);
const int cols = LESSER(most_cols, pixels - col0);
const int left_pitch = taps;
const int out_pitch = pixels;
__global const float* image = x + (size_t)kk_group_id(2) * c * h * w;
__global float* out = y + ((size_t)kk_group_id(2) * k + row0) * pixels + col0;

int tap_y = 0;
int tap_x = 0;
const int step = SHARE(taps, (taps + KC - 1) / KC, 1);
for (int t0 = 0; t0 < taps; t0 += step) {{
  const int depth = LESSER(step, taps - t0);
  for (int p = 0; p < depth; p++) {{
    // Output columns whose input at this tap lies inside the image: from `inside` to before `outside`.
    const int inside = (pad_x - tap_x + STRIDE_X - 1) / STRIDE_X;
    const int outside = (w + pad_x - tap_x + STRIDE_X - 1) / STRIDE_X;
    __local float* to = panel + p * PITCH;
    int oy = col0 / ow;
    int ox = col0 % ow;
    for (int rest = cols; rest > 0; oy++) {{
      const int count = LESSER(rest, ow - ox);
      const int iy = oy * STRIDE_Y + tap_y - pad_y;
      const int last = iy < 0 || iy >= h ? 0 : LESSER(outside - ox, count);
      __global const float* from = image + (ptrdiff_t)iy * w + ox * STRIDE_X + tap_x - pad_x;
      int j = 0;
      for (; j < LESSER(inside - ox, count); j++) to[j] = 0.0f;
#if STRIDE_X == 1
      for (; j + 8 <= last; j += 8) *(__local eight*)(to + j) = *(__global const eight*)(from + j);
#endif
      for (; j < last; j++) to[j] = from[j * STRIDE_X];
      for (; j < count; j++) to[j] = 0.0f;
      to += count;
      rest -= count;
      ox = 0;
    }}
    for (int j = cols; j % NR != 0; j++) *to++ = 0.0f;
    if (++tap_x == KERNEL_W) {{
      tap_x = 0;
      if (++tap_y == KERNEL_H) {{
        tap_y = 0;
        image += h * w;
      }}
    }}
  }}
  __global const float* left = weights + (size_t)row0 * taps + t0;
  const float keep = t0 == 0 ? 0.0f : 1.0f;
{PRODUCT}}}
"""


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """The filter's size and the strides."""
    return filter_constants(problem)


def grid(v: Mapping[str, Any]) -> tuple[int, int, int]:
    """Groups that cover the outputs: pixels, output channels, images."""
    return (-(-v["oh"] * v["ow"] // v["NC"]), -(-v["k"] // v["MC"]), v["n"])
