"""2-D convolution in float32 (cross-correlation, NCHW), any kernel size, stride and zero padding: one body, its
variants chosen by macros.

A group computes BLOCK output channels of a TILE_H × TILE_W patch of one image. It walks along the input channels: each
step's inputs (with their halo) and weights go through registers into shared memory while the step before is computed.
An item keeps ITEM_K output channels × ITEM_W neighbouring pixels of a row in registers, and reads a row of inputs once
for all taps on it. The group is cut into SLICES that share the outputs, take CHANNELS input channels of each step
apiece, and add up their sums at the end: a small image has too few outputs to keep a GPU busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .params import PARAMS, filter_constants

__all__ = ["BODY", "DEFAULT", "PARAMS", "VALUES", "allowed", "constants", "default", "grid", "group", "shared_bytes"]

VALUES: dict[str, list[int]] = {
    "BLOCK": [16, 32, 64, 128],
    "TILE_W": [14, 16, 28, 32, 56],
    "TILE_H": [2, 4, 8],
    "ITEM_K": [8],
    "ITEM_W": [4, 7, 8, 14, 16],
    "CHANNELS": [1, 2, 4, 8],
    "SLICES": [1, 2, 4, 8],
    "BUFFERS": [1, 2],
}

# 256 items in 17 KiB of shared memory for 3 × 3. 32 sums an item: compilers of GLSL do not keep many more in registers.
DEFAULT = {
    "BLOCK": 32, "TILE_W": 16, "TILE_H": 8, "ITEM_K": 8, "ITEM_W": 4, "CHANNELS": 4, "SLICES": 2, "BUFFERS": 1,
}  # fmt: skip
# How `default` makes it smaller where a large kernel or stride needs more shared memory.
_SMALLER = (
    ("CHANNELS", 2), ("CHANNELS", 1), ("SLICES", 1), ("TILE_H", 4), ("BLOCK", 16), ("TILE_W", 8), ("TILE_H", 2),
)  # fmt: skip

_MOST_SHARED_BYTES = 48 * 1024
_LEAST_SHARED_BYTES = 32 * 1024  # what every device has


def constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """The kernel's size, the strides, whether weights can be read in fours, and whether shared memory is of use."""
    return {
        **filter_constants(problem),
        "VECTOR": 4 if problem["c"] * problem["r"] * problem["s"] % 4 == 0 else 1,
        "STAGED": int(_staged(problem)),
    }


def group(v: Mapping[str, Any]) -> int:
    """Work-items in a group."""
    return int(v["TILE_W"] // v["ITEM_W"] * v["TILE_H"] * (v["BLOCK"] // v["ITEM_K"]) * v["SLICES"])


def grid(v: Mapping[str, Any]) -> tuple[int, int, int]:
    """Groups that cover the outputs: across, down, and blocks of channels of every image."""
    return (-(-v["ow"] // v["TILE_W"]), -(-v["oh"] // v["TILE_H"]), -(-v["k"] // v["BLOCK"]) * v["n"])


def shared_bytes(v: Mapping[str, Any]) -> int:
    """Shared memory of a group. `v` may say the kernel's size and strides; without them they are 3 × 3 and 1."""
    staged = v["BUFFERS"] * _piece(v) if _staged(v) else 0
    return int(4 * max(staged, 2 * group(v) * v["ITEM_W"]))


def _piece(v: Mapping[str, Any]) -> int:
    """Floats of one step's weights and inputs."""
    r, s, depth = v.get("r", 3), v.get("s", 3), v["CHANNELS"] * v["SLICES"]
    height = (v["TILE_H"] - 1) * v.get("stride_y", 1) + r
    width = (v["TILE_W"] - 1) * v.get("stride_x", 1) + s
    stride = _fours(width) if v["ITEM_W"] % 4 == 0 else width
    return int(_fours(depth * r * s) * (v["BLOCK"] + 4) + _fours(depth * height * stride))


def _fours(count: int) -> int:
    return -(-count // 4) * 4


def _staged(problem: Mapping[str, Any]) -> bool:
    """Whether even the smallest tile's weights and inputs fit shared memory; else all is read in place."""
    return 4 * _piece({**problem, **DEFAULT, **dict(_SMALLER)}) <= _LEAST_SHARED_BYTES


def allowed(v: Mapping[str, Any]) -> bool:
    """Whether a variant is within a GPU's limits and of a sensible shape; for a problem, where `v` has its values."""
    pixels, depth, taps = v["TILE_W"] * v["TILE_H"], v["CHANNELS"] * v["SLICES"], v.get("r", 3) * v.get("s", 3)
    return bool(
        v["TILE_W"] % v["ITEM_W"] == 0
        and (v["ITEM_W"] % 4 == 0) == (v["TILE_W"] % 16 == 0)
        and shared_bytes(v) <= _MOST_SHARED_BYTES
        and 128 <= group(v) <= (256 if v["ITEM_W"] > 8 else 512)  # a large tile of sums needs many registers
        and 56 <= pixels <= 256
        and (4 if taps < 25 else 1) <= depth <= 8
        and (v["ITEM_W"] > 4 or v["SLICES"] <= 2)
        and v["CHANNELS"] * v["BUFFERS"] <= 8
        and (v["BLOCK"] > 16 or v["BUFFERS"] == 1)
    )


def default(problem: Mapping[str, Any]) -> dict[str, int]:
    """A variant for a problem nobody has measured: `DEFAULT`, made smaller until it fits any device."""
    v = dict(DEFAULT)
    for name, value in _SMALLER:
        if shared_bytes({**problem, **v}) <= _LEAST_SHARED_BYTES:
            break
        v[name] = value
    return v


BODY = """
#define ACROSS (TILE_W / ITEM_W)
#define SPOTS (ACROSS * TILE_H)
#define DOWN (BLOCK / ITEM_K)
#define ITEMS (SPOTS * DOWN * SLICES)
#define PIXELS (TILE_H * TILE_W)
#define DEPTH (CHANNELS * SLICES)
#define TAPS (KERNEL_H * KERNEL_W)
#define PATCH_H ((TILE_H - 1) * STRIDE_Y + KERNEL_H)
#define PATCH_W ((TILE_W - 1) * STRIDE_X + KERNEL_W)
// Inputs one item needs of a row.
#define SPAN ((ITEM_W - 1) * STRIDE_X + KERNEL_W)
// Four floats at a time where the items' pixels allow it.
#define P_STRIDE (ITEM_W % 4 == 0 ? (PATCH_W + 3) / 4 * 4 : PATCH_W)
#define P_COUNT (DEPTH * PATCH_H * PATCH_W)
#define P_LOADS ((P_COUNT + ITEMS - 1) / ITEMS)
#define W_STRIDE (BLOCK + 4)
#define W_QUADS ((DEPTH * TAPS + 3) / 4)
#define W_PAIR (W_QUADS % 2 == 0 ? 2 : 1)
#define W_COUNT (W_QUADS * BLOCK)
#define W_LOADS ((W_COUNT + ITEMS - 1) / ITEMS)
#define W_SIZE (W_QUADS * 4 * W_STRIDE)
#define PIECE (W_SIZE + (DEPTH * PATCH_H * P_STRIDE + 3) / 4 * 4)
// A large kernel is written out row by row: all of it would take compilers too long.
#if TAPS <= 25
#define UNROLL_ROWS kk_unroll
#else
#define UNROLL_ROWS
#endif
#define OUTPUTS (DOWN * PIXELS)
#define ROUNDS ((OUTPUTS + ITEMS - 1) / ITEMS)
#define PICK(x, at, exists) ((exists) ? x[at] : 0.0f)
// Shared memory: BUFFERS times the weights, transposed so that an item reads its output channels in fours, and the
// inputs. Later the same memory takes the sums of one output channel of every item, twice.
kk_shared(float, tile, BUFFERS * PIECE * STAGED > 2 * ITEMS * ITEM_W ? BUFFERS * PIECE : 2 * ITEMS * ITEM_W);

int item = kk_local_id(0);
int across = item % ACROSS;
int row = item / ACROSS % TILE_H;
int down = item / SPOTS % DOWN;
int slice = item / (SPOTS * DOWN);
int blocks = (k + BLOCK - 1) / BLOCK;
int image = kk_group_id(2) / blocks;
int k0 = kk_group_id(2) % blocks * BLOCK;
int y0 = kk_group_id(1) * TILE_H;
int x0 = kk_group_id(0) * TILE_W;
int iy0 = y0 * STRIDE_Y - pad_y;
int ix0 = x0 * STRIDE_X - pad_x;

float sums[ITEM_K * ITEM_W];
kk_unroll for (int i = 0; i < ITEM_K * ITEM_W; i++) sums[i] = 0.0f;

#if STAGED
int steps = (c + DEPTH - 1) / DEPTH;
// What an item fetches in each step: where it is in the first one. For weights also how many taps into its output channel
// that is; `end` where there is no such element. Two neighbouring items read 32 bytes of an output channel's weights, the
// next two those of the next channel: whole memory sectors, and the transposed writes to shared memory meet no bank twice.
int end = c * TAPS;
int w_from[W_LOADS], w_tap[W_LOADS], w_to[W_LOADS];
kk_unroll for (int i = 0; i < W_LOADS; i++) {
    int e = item + i * ITEMS;
    int channel = e / W_PAIR % BLOCK;
    int tap = (e / (W_PAIR * BLOCK) * W_PAIR + e % W_PAIR) * 4;
    w_from[i] = (k0 + channel) * end + tap;
    w_tap[i] = k0 + channel < k && e < W_COUNT ? tap : end;
    w_to[i] = tap * W_STRIDE + channel;
}
int p_from[P_LOADS], p_to[P_LOADS];
int image_end = (image + 1) * c * h * w;
kk_unroll for (int i = 0; i < P_LOADS; i++) {
    int e = item + i * ITEMS;
    int iy = iy0 + e / PATCH_W % PATCH_H;
    int ix = ix0 + e % PATCH_W;
    bool inside = iy >= 0 && iy < h && ix >= 0 && ix < w && e < P_COUNT;
    p_from[i] = inside ? ((image * c + e / (PATCH_H * PATCH_W)) * h + iy) * w + ix : image_end;
    p_to[i] = W_SIZE + e / PATCH_W * P_STRIDE + e % PATCH_W;
}

// Round -1 only fetches the first pieces.
for (int step = -1; step < steps; step++) {
    int ahead = (step + 1) * DEPTH;
    kk_float4 next_w[W_LOADS];
    float next_p[P_LOADS];
    kk_unroll for (int i = 0; i < W_LOADS; i++) {
        next_w[i] = kk_make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        int at = w_from[i] + ahead * TAPS;
        int left = end - w_tap[i] - ahead * TAPS;
        if (left > 0) {
#if VECTOR == 4 && DEPTH * TAPS % 4 == 0
            next_w[i] = kk_load4(weights, at);
#else
            next_w[i] = kk_make_float4(weights[at], PICK(weights, at + 1, left > 1), PICK(weights, at + 2, left > 2),
                                       PICK(weights, at + 3, left > 3));
#endif
        }
    }
    kk_unroll for (int i = 0; i < P_LOADS; i++) {
        int at = p_from[i] + ahead * h * w;
        next_p[i] = PICK(x, at, at < image_end);
    }

    if (step >= 0) {
        int w_at = step % BUFFERS * PIECE + slice * CHANNELS * TAPS * W_STRIDE + down * 4;
        int p_at = step % BUFFERS * PIECE + W_SIZE
                 + (slice * CHANNELS * PATCH_H + row * STRIDE_Y) * P_STRIDE + across * ITEM_W * STRIDE_X;
        for (int channel = 0; channel < CHANNELS; channel++) {
            UNROLL_ROWS for (int r = 0; r < KERNEL_H; r++) {
                float inputs[(SPAN + 3) / 4 * 4];
#if ITEM_W % 4 == 0
                kk_unroll for (int j = 0; j < (SPAN + 3) / 4; j++) {
                    kk_float4 v = kk_load4(tile, p_at + (channel * PATCH_H + r) * P_STRIDE + 4 * j);
                    inputs[4 * j] = v.x; inputs[4 * j + 1] = v.y; inputs[4 * j + 2] = v.z; inputs[4 * j + 3] = v.w;
                }
#else
                kk_unroll for (int j = 0; j < SPAN; j++) inputs[j] = tile[p_at + (channel * PATCH_H + r) * P_STRIDE + j];
#endif
                kk_unroll for (int s = 0; s < KERNEL_W; s++) {
                    float taps[ITEM_K];
                    kk_unroll for (int i = 0; i < ITEM_K / 4; i++) {
                        int at = w_at + (channel * TAPS + r * KERNEL_W + s) * W_STRIDE + i * DOWN * 4;
                        kk_float4 v = kk_load4(tile, at);
                        taps[4 * i] = v.x; taps[4 * i + 1] = v.y; taps[4 * i + 2] = v.z; taps[4 * i + 3] = v.w;
                    }
                    kk_unroll for (int i = 0; i < ITEM_K; i++) {
                        kk_unroll for (int j = 0; j < ITEM_W; j++) {
                            sums[i * ITEM_W + j] += taps[i] * inputs[j * STRIDE_X + s];
                        }
                    }
                }
            }
        }
    }

#if BUFFERS == 1
    kk_barrier();
#endif
    int next = (step + 1) % BUFFERS * PIECE;
    kk_unroll for (int i = 0; i < W_LOADS; i++) {
        int at = next + w_to[i];
        if (item + i * ITEMS < W_COUNT) {
            tile[at] = next_w[i].x;
            tile[at + W_STRIDE] = next_w[i].y;
            tile[at + 2 * W_STRIDE] = next_w[i].z;
            tile[at + 3 * W_STRIDE] = next_w[i].w;
        }
    }
    kk_unroll for (int i = 0; i < P_LOADS; i++) {
        if (item + i * ITEMS < P_COUNT) tile[next + p_to[i]] = next_p[i];
    }
    kk_barrier();
}
#else
// So many taps that shared memory does not hold them: everything is read in place.
for (int channel = slice; channel < c; channel += SLICES) {
    for (int r = 0; r < KERNEL_H; r++) {
        int iy = iy0 + row * STRIDE_Y + r;
        for (int s = 0; s < KERNEL_W; s++) {
            kk_unroll for (int i = 0; i < ITEM_K; i++) {
                int out_channel = k0 + (i / 4 * DOWN + down) * 4 + i % 4;
                float tap = PICK(weights, (out_channel * c + channel) * TAPS + r * KERNEL_W + s, out_channel < k);
                kk_unroll for (int j = 0; j < ITEM_W; j++) {
                    int ix = ix0 + (across * ITEM_W + j) * STRIDE_X + s;
                    sums[i * ITEM_W + j] += tap * PICK(x, ((image * c + channel) * h + iy) * w + ix,
                                                       iy >= 0 && iy < h && ix >= 0 && ix < w);
                }
            }
        }
    }
}
#endif

// Output channel by output channel of the items' tiles: every slice lays down its sums, then all items add and write
// whole rows. Two places in turn, so that one barrier a channel is enough.
kk_unroll for (int i = 0; i < ITEM_K; i++) {
    int place = i % 2 * SLICES * OUTPUTS;
    int mine = place + (slice * DOWN + down) * PIXELS + row * TILE_W + across * ITEM_W;
#if ITEM_W % 4 == 0
    kk_unroll for (int j = 0; j < ITEM_W / 4; j++) {
        kk_store4(tile, mine + 4 * j, kk_make_float4(sums[i * ITEM_W + 4 * j], sums[i * ITEM_W + 4 * j + 1],
                                                     sums[i * ITEM_W + 4 * j + 2], sums[i * ITEM_W + 4 * j + 3]));
    }
#else
    kk_unroll for (int j = 0; j < ITEM_W; j++) tile[mine + j] = sums[i * ITEM_W + j];
#endif
    kk_barrier();
    kk_unroll for (int round = 0; round < ROUNDS; round++) {
        int e = item + round * ITEMS;
        int channel = k0 + (i / 4 * DOWN + e / PIXELS) * 4 + i % 4;
        int oy = y0 + e / TILE_W % TILE_H;
        int ox = x0 + e % TILE_W;
        if (channel < k && oy < oh && ox < ow && e < OUTPUTS) {
            float sum = tile[place + e];
            kk_unroll for (int other = 1; other < SLICES; other++) sum += tile[place + other * OUTPUTS + e];
            y[((image * k + channel) * oh + oy) * ow + ox] = sum;
        }
    }
}
"""
