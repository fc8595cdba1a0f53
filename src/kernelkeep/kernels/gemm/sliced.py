"""C = alpha·A·B + beta·C in float32, row-major, for any m, n and k, where C is narrow or small and k long.

A group computes ROWS × (LANES · COLS) of C. Its ITEMS work-items are LANES wide, and split k among them: an item reads its
parts of A and B straight into registers, STEP of them before the first is used, and there is no barrier until all sums are
added up at the end. So a group has many reads under way, which is all that counts where there is little to compute for
each: products with a vector, and with a few rows or columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .params import PARAMS

__all__ = ["BODY", "DEFAULT", "PARAMS", "VALUES", "allowed", "constants", "grid", "group", "shared_bytes"]

VALUES: dict[str, list[int]] = {
    "ROWS": [1, 2, 4, 8, 16],
    "COLS": [1, 2, 4],
    "LANES": [1, 2, 4, 8, 16, 32],
    "ITEMS": [128, 256, 512],
    "STEP": [4, 8, 16],
}

DEFAULT = {"ROWS": 4, "COLS": 4, "LANES": 8, "ITEMS": 256, "STEP": 4}

_MOST_SHARED_BYTES = 48 * 1024
_MOST_REGISTERS = 96  # sums and what is read ahead
_PASS_FLOATS = 8192
_MOST_PARTS = 16


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """How many floats one access to A (rows of k) and to B (rows of n) may take."""
    return {"VECTOR_K": 4 if problem["k"] % 4 == 0 else 1, "VECTOR_N": 4 if problem["n"] % 4 == 0 else 1}


def group(v: Mapping[str, Any]) -> int:
    """Work-items in a group."""
    return int(v["ITEMS"])


def grid(v: Mapping[str, Any]) -> tuple[int, int]:
    """Groups that cover C."""
    return (-(-v["n"] // (v["LANES"] * v["COLS"])), -(-v["m"] // v["ROWS"]))


def shared_bytes(v: Mapping[str, Any]) -> int:
    """Shared memory of a group: the sums of as many rows as fit, and the partial sums of these."""
    rows = min(v["ROWS"], max(1, _PASS_FLOATS // (v["ITEMS"] * v["COLS"])))
    outs = rows * v["LANES"] * v["COLS"]
    parts = max(1, min(v["ITEMS"] // outs, _MOST_PARTS))
    return int(4 * (v["ITEMS"] // v["LANES"] * (outs + 4) + parts * outs))


def allowed(v: Mapping[str, Any]) -> bool:
    """Whether sums and reads fit the registers, and the sums shared memory."""
    registers = v["ROWS"] * v["COLS"] + v["STEP"] * v["COLS"] + v["STEP"] * min(v["ROWS"], 4)
    return bool(
        shared_bytes(v) <= _MOST_SHARED_BYTES
        and registers <= (_MOST_REGISTERS if v["ITEMS"] == 512 else _MOST_REGISTERS + 32)
        and v["ITEMS"] * v["ROWS"] * v["COLS"] <= 16384
    )


BODY = """
#define SLICES (ITEMS / LANES)
#define WIDTH (LANES * COLS)
#define CHUNK (STEP * SLICES)
#define SOME_ROWS (8192 / (ITEMS * COLS) < 1 ? 1 : 8192 / (ITEMS * COLS))
#define PASS_ROWS (ROWS < SOME_ROWS ? ROWS : SOME_ROWS)
#define OUTS (PASS_ROWS * WIDTH)
#define SOME_PARTS (ITEMS / OUTS < 16 ? ITEMS / OUTS : 16)
#define PARTS (SOME_PARTS < 1 ? 1 : SOME_PARTS)
#define STRIDE (OUTS + 4)
#define ROUNDS ((OUTS + ITEMS - 1) / ITEMS)
#define FAR (SLICES * STRIDE)
// Which k an item reads as its u-th of a step: four in a row where it may read four at once, else neighbours read neighbours.
#if VECTOR_K == 4
#define FIRST (slice * 4)
#define NEXT(u) ((u) / 4 * 4 * SLICES + (u) % 4)
#else
#define FIRST slice
#define NEXT(u) ((u) * SLICES)
#endif
kk_shared(float, part, FAR + PARTS * OUTS);

int item = kk_local_id(0);
int lane = item % LANES;
int slice = item / LANES;
int row0 = kk_group_id(1) * ROWS;
int col0 = kk_group_id(0) * WIDTH;

// The last row and column stand in for those after them, which are not stored.
int left[ROWS];
kk_unroll for (int r = 0; r < ROWS; r++) left[r] = (row0 + r < m ? row0 + r : m - 1) * k + FIRST;
#if VECTOR_N == 4 && COLS == 4
int right = (col0 + lane * 4 < n ? col0 + lane * 4 : n - 4) + FIRST * n;
#else
int right[COLS];
kk_unroll for (int q = 0; q < COLS; q++) {
    int col = col0 + lane + q * LANES;
    right[q] = (col < n ? col : n - 1) + FIRST * n;
}
#endif

float sums[ROWS * COLS];
kk_unroll for (int i = 0; i < ROWS * COLS; i++) sums[i] = 0.0f;

for (int from = 0; from < k; from += CHUNK) {
    float x[STEP * COLS];
    float y[STEP * ROWS];
    if (from + CHUNK <= k) {
        kk_unroll for (int u = 0; u < STEP; u++) {
#if VECTOR_N == 4 && COLS == 4
            kk_float4 v = kk_load4(b, right + (from + NEXT(u)) * n);
            x[u * 4] = v.x; x[u * 4 + 1] = v.y; x[u * 4 + 2] = v.z; x[u * 4 + 3] = v.w;
#else
            kk_unroll for (int q = 0; q < COLS; q++) x[u * COLS + q] = b[right[q] + (from + NEXT(u)) * n];
#endif
        }
        kk_unroll for (int r = 0; r < ROWS; r++) {
#if VECTOR_K == 4
            kk_unroll for (int u = 0; u < STEP; u += 4) {
                kk_float4 v = kk_load4(a, left[r] + from + NEXT(u));
                y[r * STEP + u] = v.x; y[r * STEP + u + 1] = v.y; y[r * STEP + u + 2] = v.z; y[r * STEP + u + 3] = v.w;
            }
#else
            kk_unroll for (int u = 0; u < STEP; u++) y[r * STEP + u] = a[left[r] + from + NEXT(u)];
#endif
        }
    } else {
        // The last step: what is past the end counts as zero.
        kk_unroll for (int u = 0; u < STEP; u++) {
            int exists = from + FIRST + NEXT(u) < k ? 1 : 0;
#if VECTOR_N == 4 && COLS == 4
            kk_float4 v = kk_make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (exists == 1) v = kk_load4(b, right + (from + NEXT(u)) * n);
            x[u * 4] = v.x; x[u * 4 + 1] = v.y; x[u * 4 + 2] = v.z; x[u * 4 + 3] = v.w;
#else
            kk_unroll for (int q = 0; q < COLS; q++) {
                x[u * COLS + q] = exists == 1 ? b[right[q] + (from + NEXT(u)) * n] : 0.0f;
            }
#endif
#if VECTOR_K == 1
            kk_unroll for (int r = 0; r < ROWS; r++) y[r * STEP + u] = exists == 1 ? a[left[r] + from + NEXT(u)] : 0.0f;
#endif
        }
#if VECTOR_K == 4
        kk_unroll for (int r = 0; r < ROWS; r++) {
            kk_unroll for (int u = 0; u < STEP; u += 4) {
                kk_float4 v = kk_make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (from + FIRST + NEXT(u) < k) v = kk_load4(a, left[r] + from + NEXT(u));
                y[r * STEP + u] = v.x; y[r * STEP + u + 1] = v.y; y[r * STEP + u + 2] = v.z; y[r * STEP + u + 3] = v.w;
            }
        }
#endif
    }
    kk_unroll for (int u = 0; u < STEP; u++) {
        kk_unroll for (int r = 0; r < ROWS; r++) {
            kk_unroll for (int q = 0; q < COLS; q++) sums[r * COLS + q] += y[r * STEP + u] * x[u * COLS + q];
        }
    }
}

// As many rows at a time as fit: every slice lays down its sums, and items add up those of one element of C, several items
// for each where there are more items than elements.
kk_unroll for (int pass = 0; pass < ROWS; pass += PASS_ROWS) {
    if (pass > 0) { kk_barrier(); }
    kk_unroll for (int r = 0; r < PASS_ROWS; r++) {
        int to = slice * STRIDE + r * WIDTH;
#if VECTOR_N == 4 && COLS == 4
        int of = (pass + r) * 4;
        kk_store4(part, to + lane * 4, kk_make_float4(sums[of], sums[of + 1], sums[of + 2], sums[of + 3]));
#else
        kk_unroll for (int q = 0; q < COLS; q++) part[to + lane + q * LANES] = sums[(pass + r) * COLS + q];
#endif
    }
    kk_barrier();
#if PARTS > 1
    if (item < PARTS * OUTS) {
        float sum = 0.0f;
        kk_unroll for (int s = 0; s < SLICES / PARTS; s++) {
            sum += part[(item / OUTS + s * PARTS) * STRIDE + item % OUTS];
        }
        part[FAR + item] = sum;
    }
    kk_barrier();
#endif
    kk_unroll for (int round = 0; round < ROUNDS; round++) {
        int out = item + round * ITEMS;
        int row = row0 + pass + out / WIDTH;
        int col = col0 + out % WIDTH;
        if (out < OUTS && row < m && col < n) {
            float value = 0.0f;
#if PARTS > 1
            kk_unroll for (int p = 0; p < PARTS; p++) value += part[FAR + p * OUTS + out];
#else
            kk_unroll for (int s = 0; s < SLICES; s++) value += part[s * STRIDE + out];
#endif
            value *= alpha;
            // With beta 0, C is not read: what it holds may be NaN.
            c[row * n + col] = beta != 0.0f ? value + beta * c[row * n + col] : value;
        }
    }
}
"""
