"""Eight small portable kernels with NumPy references, for measuring how fast a program starts.

They compute little and use different features (shared memory, atomics, two dimensions, special functions), so that a
start consists of compiling or loading them. Sizes are odd on purpose, as in `basic.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..programs.portable import Buffer, PortableKernel, Scalar
from .basic import Sample

_Values = Mapping[str, Any]
_Result = np.ndarray[Any, Any]

_N, _GROUP = 4_099, 64
_GROUPS = -(-_N // _GROUP)
_HEIGHT, _WIDTH, _TILE = 61, 83, 8
_TILES = (-(-_WIDTH // _TILE), -(-_HEIGHT // _TILE))
_BINS, _TAPS = 16, 5


def _random(seed: int, *shape: int) -> _Result:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


def _axpby(values: _Values) -> _Result:
    return np.asarray(values["a"] * values["x"] + values["b"] * values["y"])


def _wave(values: _Values) -> _Result:
    return np.asarray(np.sin(values["x"]) * np.exp(-values["x"]) + np.sqrt(values["x"]))


def _group_sum(values: _Values) -> _Result:
    padded = np.zeros(_GROUPS * _GROUP, np.float32)
    padded[:_N] = values["x"]
    return np.asarray(padded.reshape(_GROUPS, _GROUP).sum(axis=1))


def _histogram(values: _Values) -> _Result:
    return np.bincount(values["x"], minlength=_BINS).astype(np.int32)


def _transpose(values: _Values) -> _Result:
    return np.ascontiguousarray(values["x"].T)


def _blur(values: _Values) -> _Result:
    padded = np.pad(values["x"], _TAPS // 2)
    return np.convolve(padded, values["w"][::-1], mode="valid").astype(np.float32)


def _matmul(values: _Values) -> _Result:
    return np.asarray(values["x"] @ values["y"])


def _hash(values: _Values) -> _Result:
    x = values["x"].astype(np.uint64)
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return np.asarray(x ^ (x >> 16)).astype(np.uint32)


_X, _Y, _OUT = Buffer("x", "f4", "r"), Buffer("y", "f4", "r"), Buffer("z", "f4", "w")
_COUNT = Scalar("n", "i4")
_SIZES = (Scalar("width", "i4"), Scalar("height", "i4"))


STARTUP_SAMPLES = (
    Sample(
        PortableKernel(
            "axpby",
            [_X, _Y, _OUT, Scalar("a", "f4"), Scalar("b", "f4"), _COUNT],
            "int i = kk_global_id(0); if (i < n) z[i] = a * x[i] + b * y[i];",
            _GROUP,
        ),
        _GROUPS,
        lambda: {
            "x": _random(1, _N), "y": _random(2, _N), "z": np.zeros(_N, "f4"),
            "a": np.float32(1.5), "b": np.float32(-0.5), "n": np.int32(_N),
        },
        "z",
        _axpby,
        1e-6,
    ),
    Sample(
        PortableKernel(
            "wave",
            [_X, _OUT, _COUNT],
            "int i = kk_global_id(0); if (i < n) z[i] = sin(x[i]) * exp(-x[i]) + sqrt(x[i]);",
            _GROUP,
        ),
        _GROUPS,
        lambda: {"x": _random(3, _N), "z": np.zeros(_N, "f4"), "n": np.int32(_N)},
        "z",
        _wave,
        1e-4,  # OpenGL promises little about the precision of sin and exp
    ),
    Sample(
        PortableKernel(
            "group_sum",
            [_X, _OUT, _COUNT],
            """kk_shared(float, part, 64);
int i = kk_global_id(0), me = kk_local_id(0);
part[me] = 0.0f;
if (i < n) part[me] = x[i];
kk_barrier();
for (int half_of = 32; half_of > 0; half_of = half_of / 2) {
  if (me < half_of) part[me] += part[me + half_of];
  kk_barrier();
}
if (me == 0) z[kk_group_id(0)] = part[0];""",
            _GROUP,
        ),
        _GROUPS,
        lambda: {"x": _random(4, _N), "z": np.zeros(_GROUPS, "f4"), "n": np.int32(_N)},
        "z",
        _group_sum,
        1e-4,
    ),
    Sample(
        PortableKernel(
            "histogram",
            [Buffer("x", "i4", "r"), Buffer("z", "i4", "rw"), _COUNT],
            "int i = kk_global_id(0); if (i < n) kk_atomic_add(z[x[i]], 1);",
            _GROUP,
        ),
        _GROUPS,
        lambda: {
            "x": np.random.default_rng(5).integers(0, _BINS, _N, dtype=np.int32),
            "z": np.zeros(_BINS, "i4"), "n": np.int32(_N),
        },
        "z",
        _histogram,
        0.0,
    ),
    Sample(
        PortableKernel(
            "transpose",
            [_X, _OUT, *_SIZES],
            """kk_shared(float, tile, 8, 9);
int column = kk_global_id(0), row = kk_global_id(1), u = kk_local_id(0), v = kk_local_id(1);
if (column < width && row < height) tile[v][u] = x[row * width + column];
kk_barrier();
column = kk_group_id(1) * 8 + u;
row = kk_group_id(0) * 8 + v;
if (column < height && row < width) z[row * height + column] = tile[u][v];""",
            (_TILE, _TILE),
        ),
        _TILES,
        lambda: {
            "x": _random(6, _HEIGHT, _WIDTH), "z": np.zeros((_WIDTH, _HEIGHT), "f4"),
            "width": np.int32(_WIDTH), "height": np.int32(_HEIGHT),
        },
        "z",
        _transpose,
        0.0,
    ),
    Sample(
        PortableKernel(
            "blur",
            [_X, Buffer("w", "f4", "r"), _OUT, _COUNT],
            """int i = kk_global_id(0);
if (i < n) {
  float sum = 0.0f;
  for (int t = 0; t < 5; t++) {
    int at = i + t - 2;
    if (at >= 0 && at < n) sum += w[t] * x[at];
  }
  z[i] = sum;
}""",
            _GROUP,
        ),
        _GROUPS,
        lambda: {"x": _random(7, _N), "w": _random(8, _TAPS), "z": np.zeros(_N, "f4"), "n": np.int32(_N)},
        "z",
        _blur,
        1e-5,
    ),
    Sample(
        PortableKernel(
            "matmul",
            [_X, _Y, _OUT, Scalar("rows", "i4"), Scalar("inner", "i4"), Scalar("columns", "i4")],
            """kk_shared(float, left, 8, 8);
kk_shared(float, right, 8, 8);
int column = kk_global_id(0), row = kk_global_id(1), u = kk_local_id(0), v = kk_local_id(1);
float sum = 0.0f;
for (int k = 0; k < inner; k += 8) {
  left[v][u] = 0.0f;
  right[v][u] = 0.0f;
  if (row < rows && k + u < inner) left[v][u] = x[row * inner + k + u];
  if (column < columns && k + v < inner) right[v][u] = y[(k + v) * columns + column];
  kk_barrier();
  for (int t = 0; t < 8; t++) sum += left[v][t] * right[t][u];
  kk_barrier();
}
if (row < rows && column < columns) z[row * columns + column] = sum;""",
            (_TILE, _TILE),
        ),
        _TILES,
        lambda: {
            "x": _random(9, _HEIGHT, 37), "y": _random(10, 37, _WIDTH), "z": np.zeros((_HEIGHT, _WIDTH), "f4"),
            "rows": np.int32(_HEIGHT), "inner": np.int32(37), "columns": np.int32(_WIDTH),
        },
        "z",
        _matmul,
        1e-4,
    ),
    Sample(
        PortableKernel(
            "scramble",
            [Buffer("x", "u4", "r"), Buffer("z", "u4", "w"), _COUNT],
            """int i = kk_global_id(0);
if (i < n) {
  uint v = x[i];
  v = (v ^ (v >> 16)) * 73244475u;
  v = (v ^ (v >> 16)) * 73244475u;
  z[i] = v ^ (v >> 16);
}""",
            _GROUP,
        ),
        _GROUPS,
        lambda: {"x": np.arange(_N, dtype=np.uint32), "z": np.zeros(_N, "u4"), "n": np.int32(_N)},
        "z",
        _hash,
        0.0,
    ),
)  # fmt: skip
