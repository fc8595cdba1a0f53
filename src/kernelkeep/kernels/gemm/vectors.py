"""C = alpha A B + beta C in float32 for OpenCL on a CPU: row-major, any m, n, k ≥ 1.

A group is one work-item, for a CPU core one task: about MC rows × NC columns of C. It walks k in steps of about KC.
Each step copies its part of B to local memory, where it stays in the core's cache, then sums blocks of MR rows × NV
vectors of C in registers; rows of A are read where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .params import PARAMS

__all__ = [
    "BODY",
    "DEFAULT",
    "HEAD",
    "PARAMS",
    "PRODUCT",
    "VALUES",
    "allowed",
    "constants",
    "grid",
    "group",
    "shared_bytes",
]

# What the convolution, the same product with a B that is gathered from an image, begins with too.
HEAD = """\
// PoCL calls vload16 and vstore16 as functions, which empties the registers; through a type that may lie anywhere the
// same access is one instruction, or two where registers hold 8 floats. LESSER, as min may be a call, too.
typedef float8 __attribute__((aligned(4))) eight;
typedef float16 __attribute__((aligned(4))) sixteen;
#define LESSER(x, y) ((x) < (y) ? (x) : (y))
#define NR (NV * 16)
// A fair share of a length for each of a number of parts, in multiples of a step: the cores finish together.
#define SHARE(length, parts, step) (((length) + (parts) * (step) - 1) / ((parts) * (step)) * (step))
// Rows an odd number of cache lines apart use all sets of the cache. The 16 also take up a share rounded up to NR.
#define PITCH (NC + 16)
__local float panel[KC * PITCH];
"""

# A step's product, added to `rows` × `cols` elements from `out` on, whose rows are `out_pitch` apart:
# rows of `depth` elements at `left`, `left_pitch` apart, times `panel`.
PRODUCT = """\
  for (int j = 0; j < cols; j += NR) {
    for (int i = 0; i < rows; i += MR) {
      __local const float* below = panel + j;
      __global const float* beside[MR];
      float16 sum[MR][NV];
      #pragma unroll
      for (int r = 0; r < MR; r++) {
        // The last row stands in for those after it, which are not stored.
        beside[r] = left + (size_t)LESSER(i + r, rows - 1) * left_pitch;
        #pragma unroll
        for (int v = 0; v < NV; v++) sum[r][v] = 0.0f;
      }
      for (int p = 0; p < depth; p++) {
        float16 x[NV];
        #pragma unroll
        for (int v = 0; v < NV; v++) x[v] = *(__local const sixteen*)(below + p * PITCH + v * 16);
        #pragma unroll
        for (int r = 0; r < MR; r++) {
          #pragma unroll
          for (int v = 0; v < NV; v++) sum[r][v] += beside[r][p] * x[v];
        }
      }
      __global float* to = out + (size_t)i * out_pitch + j;
      if (j + NR <= cols) {
        #pragma unroll
        for (int r = 0; r < MR; r++, to += out_pitch) {
          if (i + r < rows) {
            #pragma unroll
            for (int v = 0; v < NV; v++) {
              __global sixteen* at = (__global sixteen*)(to + v * 16);
              *at = keep != 0.0f ? alpha * sum[r][v] + keep * *at : alpha * sum[r][v];
            }
          }
        }
      } else {
        float one[MR][NR];
        #pragma unroll
        for (int r = 0; r < MR; r++) {
          #pragma unroll
          for (int v = 0; v < NV; v++) *(sixteen*)(one[r] + v * 16) = alpha * sum[r][v];
        }
        for (int r = 0; r < LESSER(MR, rows - i); r++, to += out_pitch)
          for (int q = 0; q < LESSER(NR, cols - j); q++) to[q] = keep != 0.0f ? one[r][q] + keep * to[q] : one[r][q];
      }
    }
  }
"""

BODY = f"""\
{HEAD}
const int most_rows = SHARE(m, kk_group_count(1), MR);
const int most_cols = SHARE(n, kk_group_count(0), NR);
const int row0 = kk_group_id(1) * most_rows;
const int col0 = kk_group_id(0) * most_cols;
const int rows = LESSER(most_rows, m - row0);
const int cols = LESSER(most_cols, n - col0);
const int left_pitch = k;
const int out_pitch = n;
__global float* out = c + (size_t)row0 * n + col0;

const int step = SHARE(k, (k + KC - 1) / KC, 1);
for (int k0 = 0; k0 < k; k0 += step) {{
  const int depth = LESSER(step, k - k0);
  // Zeros after the last column, so that only the stores need to know where C ends.
  for (int p = 0; p < depth; p++) {{
    __global const float* from = b + (size_t)(k0 + p) * n + col0;
    __local float* to = panel + p * PITCH;
    int j = 0;
    for (; j + 16 <= cols; j += 16) *(__local sixteen*)(to + j) = *(__global const sixteen*)(from + j);
    for (; j < cols; j++) to[j] = from[j];
    for (; j % NR != 0; j++) to[j] = 0.0f;
  }}
  __global const float* left = a + (size_t)row0 * k + k0;
  // C is scaled by beta once; what earlier steps have added stays. With 0, C is not read: it may hold anything.
  const float keep = k0 == 0 ? beta : 1.0f;
{PRODUCT}}}
"""

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
    return (v["MR"], v["NV"]) == (6, 1) or (v["MR"] == 12 and v["MC"] >= 128)


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
