"""C = alpha·A·B + beta·C in float32, row-major, for any m, n and k: one body, its variants chosen by macros.

A group computes BLOCK_M × BLOCK_N of C. It walks along k in steps of DEPTH: each step's pieces of A and B go through
registers into shared memory while the step before is computed. An item keeps ITEM_M × ITEM_N sums in registers. The
group is cut into SLICES that share the tile of C and split each step's depth among them, and add up their sums at the
end: a small C has few tiles, and without slices too few items to keep a GPU busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .params import PARAMS

__all__ = ["BODY", "DEFAULT", "PARAMS", "VALUES", "allowed", "constants", "default", "grid", "group", "shared_bytes"]

VALUES: dict[str, list[int]] = {
    "BLOCK_M": [16, 32, 64, 128],
    "BLOCK_N": [16, 32, 64, 128],
    "ITEM_M": [4, 8],
    "ITEM_N": [4, 8, 16],
    "DEPTH": [16, 32, 64],
    "SLICES": [1, 2, 4, 8],
    "BUFFERS": [1, 2],
}

# 256 items in 16 KiB of shared memory. 32 sums an item: compilers of GLSL do not keep many more in registers.
DEFAULT = {"BLOCK_M": 64, "BLOCK_N": 64, "ITEM_M": 4, "ITEM_N": 8, "DEPTH": 16, "SLICES": 2, "BUFFERS": 1}
# What `default` takes where C is so small that few groups have work.
_SMALL = {"BLOCK_M": 16, "BLOCK_N": 32, "ITEM_M": 4, "ITEM_N": 4, "DEPTH": 64, "SLICES": 4, "BUFFERS": 1}
_FEW_GROUPS = 64

_MOST_SHARED_BYTES = 48 * 1024


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """How many floats one access to A (rows of k) and to B and C (rows of n) may take."""
    return {"VECTOR_K": 4 if problem["k"] % 4 == 0 else 1, "VECTOR_N": 4 if problem["n"] % 4 == 0 else 1}


def group(v: Mapping[str, Any]) -> int:
    """Work-items in a group."""
    return int(v["BLOCK_M"] // v["ITEM_M"] * (v["BLOCK_N"] // v["ITEM_N"]) * v["SLICES"])


def grid(v: Mapping[str, Any]) -> tuple[int, int]:
    """Groups that cover C."""
    return (-(-v["n"] // v["BLOCK_N"]), -(-v["m"] // v["BLOCK_M"]))


def shared_bytes(v: Mapping[str, Any]) -> int:
    """Shared memory of a group: the pieces of A and B, or the slices' sums when these are added up."""
    pieces = v["BUFFERS"] * v["DEPTH"] * (v["BLOCK_M"] + 4 + v["BLOCK_N"])
    return int(4 * max(pieces, 2 * group(v) * v["ITEM_N"]))


def allowed(v: Mapping[str, Any]) -> bool:
    """Whether a variant is within a GPU's limits, and has no neighbour that is better by its very shape."""
    item, block, slice_depth = v["ITEM_M"] * v["ITEM_N"], v["BLOCK_M"] * v["BLOCK_N"], v["DEPTH"] // v["SLICES"]
    return bool(
        shared_bytes(v) <= _MOST_SHARED_BYTES
        and 64 <= group(v) <= (256 if item > 64 else 512)  # a large tile of sums needs many registers
        and v["ITEM_M"] <= v["ITEM_N"]
        and v["BLOCK_M"] <= 2 * v["BLOCK_N"] <= 4 * v["BLOCK_M"]
        and 16 * item <= block <= 256 * item
        and (item == 16 or block >= 2048)
        and 4 <= slice_depth <= 16
        and (v["SLICES"] <= 4 or block <= 2048)
    )


def default(problem: Mapping[str, Any]) -> dict[str, int]:
    """A variant for a problem nobody has measured."""
    across, down = grid({**problem, **DEFAULT})
    return dict(DEFAULT if across * down >= _FEW_GROUPS else _SMALL)


BODY = """
#define ACROSS (BLOCK_N / ITEM_N)
#define DOWN (BLOCK_M / ITEM_M)
#define ITEMS (ACROSS * DOWN * SLICES)
#define NEAR (DOWN < 8 ? DOWN : 8)
#define A_STRIDE (BLOCK_M + 4)
#define PIECE (DEPTH * (A_STRIDE + BLOCK_N))
#define A_QUADS (BLOCK_M * DEPTH / 4)
#define B_QUADS (BLOCK_N * DEPTH / 4)
#define A_LOADS ((A_QUADS + ITEMS - 1) / ITEMS)
#define B_LOADS ((B_QUADS + ITEMS - 1) / ITEMS)
#define QUADS (DOWN * BLOCK_N / 4)
#define ROUNDS ((QUADS + ITEMS - 1) / ITEMS)
#define PER_SLICE (DEPTH / SLICES)
// Shared memory: BUFFERS times a piece of A, transposed so that an item reads its rows in fours, and a piece of B.
// Later the same memory takes one row of every item's sums, twice.
kk_shared(float, tile, BUFFERS * PIECE > 2 * ITEMS * ITEM_N ? BUFFERS * PIECE : 2 * ITEMS * ITEM_N);

int item = kk_local_id(0);
int slice = item / (ACROSS * DOWN);
// The items of a tile in an order in which neighbours share what they read from shared memory, down as well as across.
int spot = item % (ACROSS * DOWN);
int across = spot % 2 + spot / (2 * NEAR) % (ACROSS / 2) * 2;
int down = spot / 2 % NEAR + spot / (ACROSS * NEAR) * NEAR;
int row0 = kk_group_id(1) * BLOCK_M;
int col0 = kk_group_id(0) * BLOCK_N;
int steps = (k + DEPTH - 1) / DEPTH;

kk_float4 sums[ITEM_M * ITEM_N / 4];
kk_unroll for (int i = 0; i < ITEM_M * ITEM_N / 4; i++) sums[i] = kk_make_float4(0.0f, 0.0f, 0.0f, 0.0f);

// What an item fetches in each step: where it is in the first one, and how far along k, which is k where A or B ends in
// the other direction. Two neighbouring items read 32 bytes of a row of A, the next two those of the row below: whole
// memory sectors, and the transposed writes to shared memory meet no bank twice.
#if VECTOR_K == 4
int a_from[A_LOADS], a_depth[A_LOADS], a_to[A_LOADS];
kk_unroll for (int i = 0; i < A_LOADS; i++) {
    int e = item + i * ITEMS;
    int row = e / 2 % BLOCK_M;
    int depth = e / (2 * BLOCK_M) * 8 + e % 2 * 4;
    a_from[i] = (row0 + row) * k + depth;
    a_depth[i] = row0 + row < m && e < A_QUADS ? depth : k;
    a_to[i] = depth * A_STRIDE + row;
}
#else
// One by one: eight neighbouring items read eight of a row, the next eight those of the row below. The i-th of an item is
// A_DOWN(i) rows and A_ALONG(i) steps of k after its first.
#define A_SCALARS ((BLOCK_M * DEPTH + ITEMS - 1) / ITEMS)
#define A_TURN (ITEMS / 8 < BLOCK_M ? 8 * BLOCK_M / ITEMS : 1)
#define A_DOWN(i) ((i) % A_TURN * (ITEMS / 8))
#define A_ALONG(i) (A_TURN > 1 ? (i) / A_TURN * 8 : (i) * (ITEMS / BLOCK_M))
int a_row = item / 8 % BLOCK_M;
int a_depth = item % 8 + item / 8 / BLOCK_M * 8;
int a_from = (row0 + a_row) * k + a_depth;
int a_to = a_depth * A_STRIDE + a_row;
#endif
#if VECTOR_N == 4
int b_from[B_LOADS], b_depth[B_LOADS];
kk_unroll for (int i = 0; i < B_LOADS; i++) {
    int e = item + i * ITEMS;
    int col = col0 + e % (BLOCK_N / 4) * 4;
    int depth = e / (BLOCK_N / 4);
    b_from[i] = depth * n + col;
    b_depth[i] = col < n && e < B_QUADS ? depth : k;
}
#else
// One by one: neighbouring items read neighbours in a row of B.
#define B_SCALARS ((BLOCK_N * DEPTH + ITEMS - 1) / ITEMS)
#define B_TURN (ITEMS < BLOCK_N ? BLOCK_N / ITEMS : 1)
#define B_ACROSS(i) ((i) % B_TURN * ITEMS)
#define B_ALONG(i) (B_TURN > 1 ? (i) / B_TURN : (i) * (ITEMS / BLOCK_N))
int b_col = item % BLOCK_N;
int b_depth = item / BLOCK_N;
int b_from = b_depth * n + col0 + b_col;
#endif

// Round -1 only fetches the first pieces.
for (int step = -1; step < steps; step++) {
    int ahead = (step + 1) * DEPTH;
#if VECTOR_K == 4
    kk_float4 next_a[A_LOADS];
    kk_unroll for (int i = 0; i < A_LOADS; i++) {
        next_a[i] = kk_make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        int at = a_from[i] + ahead;
        int left = k - a_depth[i] - ahead;
        if (left > 0) {
            next_a[i] = kk_load4(a, at);
        }
    }
#else
    float next_a[A_SCALARS];
    kk_unroll for (int i = 0; i < A_SCALARS; i++) {
        next_a[i] = 0.0f;
        if (row0 + a_row + A_DOWN(i) < m && a_depth + A_ALONG(i) + ahead < k) {
            next_a[i] = a[a_from + A_DOWN(i) * k + A_ALONG(i) + ahead];
        }
    }
#endif
#if VECTOR_N == 4
    kk_float4 next_b[B_LOADS];
    kk_unroll for (int i = 0; i < B_LOADS; i++) {
        next_b[i] = kk_make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        int at = b_from[i] + ahead * n;
        if (b_depth[i] + ahead < k) {
            next_b[i] = kk_load4(b, at);
        }
    }
#else
    float next_b[B_SCALARS];
    kk_unroll for (int i = 0; i < B_SCALARS; i++) {
        next_b[i] = 0.0f;
        if (col0 + b_col + B_ACROSS(i) < n && b_depth + B_ALONG(i) + ahead < k) {
            next_b[i] = b[b_from + B_ALONG(i) * n + B_ACROSS(i) + ahead * n];
        }
    }
#endif

    if (step >= 0) {
        int piece = step % BUFFERS * PIECE;
        int a_at = piece + slice * PER_SLICE * A_STRIDE + down * 4;
        int b_at = piece + DEPTH * A_STRIDE + slice * PER_SLICE * BLOCK_N + across * 4;
        kk_unroll for (int d = 0; d < PER_SLICE; d++) {
            float rows[ITEM_M];
            kk_float4 cols[ITEM_N / 4];
            kk_unroll for (int i = 0; i < ITEM_M / 4; i++) {
                kk_float4 v = kk_load4(tile, a_at + d * A_STRIDE + i * DOWN * 4);
                rows[4 * i] = v.x; rows[4 * i + 1] = v.y; rows[4 * i + 2] = v.z; rows[4 * i + 3] = v.w;
            }
            kk_unroll for (int j = 0; j < ITEM_N / 4; j++) cols[j] = kk_load4(tile, b_at + d * BLOCK_N + j * ACROSS * 4);
            kk_unroll for (int i = 0; i < ITEM_M; i++) {
                kk_unroll for (int j = 0; j < ITEM_N / 4; j++) {
                    sums[i * ITEM_N / 4 + j].x += rows[i] * cols[j].x;
                    sums[i * ITEM_N / 4 + j].y += rows[i] * cols[j].y;
                    sums[i * ITEM_N / 4 + j].z += rows[i] * cols[j].z;
                    sums[i * ITEM_N / 4 + j].w += rows[i] * cols[j].w;
                }
            }
        }
    }

#if BUFFERS == 1
    kk_barrier();
#endif
    int next = (step + 1) % BUFFERS * PIECE;
#if VECTOR_K == 4
    kk_unroll for (int i = 0; i < A_LOADS; i++) {
        int at = next + a_to[i];
        if (item + i * ITEMS < A_QUADS) {
            tile[at] = next_a[i].x;
            tile[at + A_STRIDE] = next_a[i].y;
            tile[at + 2 * A_STRIDE] = next_a[i].z;
            tile[at + 3 * A_STRIDE] = next_a[i].w;
        }
    }
#else
    kk_unroll for (int i = 0; i < A_SCALARS; i++) {
        if (a_depth + A_ALONG(i) < DEPTH) {
            tile[next + a_to + A_ALONG(i) * A_STRIDE + A_DOWN(i)] = next_a[i];
        }
    }
#endif
#if VECTOR_N == 4
    kk_unroll for (int i = 0; i < B_LOADS; i++) {
        int e = item + i * ITEMS;
        if (e < B_QUADS) {
            kk_store4(tile, next + DEPTH * A_STRIDE + e * 4, next_b[i]);
        }
    }
#else
    kk_unroll for (int i = 0; i < B_SCALARS; i++) {
        if (b_depth + B_ALONG(i) < DEPTH) {
            tile[next + DEPTH * A_STRIDE + item + i * ITEMS] = next_b[i];
        }
    }
#endif
    kk_barrier();
}

// Row by row of the items' tiles: every slice lays down its sums, then all items add and write. Two places in turn, so
// that one barrier a row is enough.
kk_unroll for (int i = 0; i < ITEM_M; i++) {
    int place = i % 2 * SLICES * DOWN * BLOCK_N;
    kk_unroll for (int j = 0; j < ITEM_N / 4; j++) {
        kk_store4(tile, place + (slice * DOWN + down) * BLOCK_N + (j * ACROSS + across) * 4, sums[i * ITEM_N / 4 + j]);
    }
    kk_barrier();
#if VECTOR_N == 4
    kk_unroll for (int round = 0; round < ROUNDS; round++) {
        int e = item + round * ITEMS;
        int row = row0 + (i / 4 * DOWN + e / (BLOCK_N / 4)) * 4 + i % 4;
        int col = col0 + e % (BLOCK_N / 4) * 4;
        if (row < m && col < n && e < QUADS) {
            kk_float4 sum = kk_load4(tile, place + e * 4);
            kk_unroll for (int other = 1; other < SLICES; other++) {
                kk_float4 more = kk_load4(tile, place + other * DOWN * BLOCK_N + e * 4);
                sum.x += more.x; sum.y += more.y; sum.z += more.z; sum.w += more.w;
            }
            sum.x *= alpha; sum.y *= alpha; sum.z *= alpha; sum.w *= alpha;
            int at = row * n + col;
            // With beta 0, C is not read: what it holds may be NaN.
            if (beta != 0.0f) {
                kk_float4 old = kk_load4(c, at);
                sum.x += beta * old.x; sum.y += beta * old.y; sum.z += beta * old.z; sum.w += beta * old.w;
            }
            kk_store4(c, at, sum);
        }
    }
#else
    kk_unroll for (int round = 0; round < (DOWN * BLOCK_N + ITEMS - 1) / ITEMS; round++) {
        int e = item + round * ITEMS;
        int row = row0 + (i / 4 * DOWN + e / BLOCK_N) * 4 + i % 4;
        int col = col0 + e % BLOCK_N;
        if (row < m && col < n && e < DOWN * BLOCK_N) {
            float sum = tile[place + e];
            kk_unroll for (int other = 1; other < SLICES; other++) sum += tile[place + other * DOWN * BLOCK_N + e];
            sum *= alpha;
            c[row * n + col] = beta != 0.0f ? sum + beta * c[row * n + col] : sum;
        }
    }
#endif
}
"""
