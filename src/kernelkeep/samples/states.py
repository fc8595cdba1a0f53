"""State programs with NumPy references: what the examples, the demo, the benchmarks and the strategy tests run.

One of each coupling, and an automaton in which an iteration that was lost or done twice changes every word of the state. Sizes
are odd on purpose, as in `basic.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..continuous.program import StateProgram
from .basic import largest_error

_Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class StateSample:
    """A state program of any size, and what its state must be after so many iterations.

    `size` and `iterations` are those of a run that is fast on any device; `iterations` is None where the work ends by itself, and
    then the reference computes the end only. `tolerance` is the error allowed in an element: 0 for integers, which are exact.
    """

    name: str
    program: Callable[[int], StateProgram]
    reference: Callable[[StateProgram, int | None], _Arrays]
    size: int
    iterations: int | None
    tolerance: float = 0.0

    def largest_error(self, state: Mapping[str, Any], program: StateProgram, iterations: int | None) -> float:
        """How far the worst element of a state is off; `state` holds arrays of the device or of NumPy."""
        worst = 0.0
        for key, expected in self.reference(program, iterations).items():
            found = state[key] if isinstance(state[key], np.ndarray) else state[key].numpy()
            if found.shape != expected.shape or found.dtype != expected.dtype:
                raise ValueError(f"{key} of {self.name} is {found.dtype} {found.shape}, not {expected.dtype}")
            worst = max(worst, largest_error(found, expected))
        return worst


# --- neighbours: heat spreads over a plate with one hot edge


def _heat(size: int) -> StateProgram:
    plate = np.zeros((size, size + 9), "f4")
    plate[0] = 1.0
    return StateProgram(
        "heat",
        coupling="neighbours",
        items=plate.size,
        state={"u": plate},
        scalars={"k": np.float32(0.2), "width": plate.shape[1], "height": plate.shape[0]},
        body="""int i = kk_item();
int x = i % width, y = i / width;
if (x > 0 && x < width - 1 && y > 0 && y < height - 1)
  u_next[i] = u[i] + k * (u[i - width] + u[i + width] + u[i - 1] + u[i + 1] - 4.0f * u[i]);
else u_next[i] = u[i];""",
    )


def _heat_reference(program: StateProgram, iterations: int | None) -> _Arrays:
    u, k = program.state["u"].copy(), program.scalars["k"]
    for _ in range(iterations or 0):
        inner = u[1:-1, 1:-1]
        u[1:-1, 1:-1] = inner + k * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - np.float32(4) * inner)
    return {"u": u}


# --- neighbours, in integers: every word depends on all iterations and, after enough of them, on all other words


def _scramble(size: int) -> StateProgram:
    return StateProgram(
        "scramble",
        coupling="neighbours",
        state={"word": np.arange(1, size + 1, dtype="u4"), "count": np.zeros(size, "u4")},
        body="""int i = kk_item(), last = kk_items() - 1;
uint left = word[i > 0 ? i - 1 : last], right = word[i < last ? i + 1 : 0];
uint mixed = word[i] * 1664525u + (left ^ (right >> 3)) + kk_uint(kk_iteration());
word_next[i] = mixed ^ (mixed >> 15);
count_next[i] = count[i] + 1u;""",
    )


def _scramble_reference(program: StateProgram, iterations: int | None) -> _Arrays:
    ring = np.pad(program.state["word"], 1, mode="wrap")  # each word has its neighbours beside it
    left, word, right = ring[:-2], ring[1:-1], ring[2:]
    for iteration in range(iterations or 0):
        mixed = word * np.uint32(1664525) + (left ^ (right >> np.uint32(3))) + np.uint32(iteration)
        word[:] = mixed ^ (mixed >> np.uint32(15))
        ring[0], ring[-1] = word[-1], word[0]
    return {"word": word.copy(), "count": program.state["count"] + np.uint32(iterations or 0)}


# --- independent: how many steps of Collatz's rule lead from n to 1

_STEPS = 8  # an iteration


def _collatz(size: int) -> StateProgram:
    if size > 113_383:
        raise ValueError("size must be at most 113,383: from there on Collatz's sequence may leave 32 bits")
    return StateProgram(
        "collatz",
        coupling="independent",
        state={"value": np.arange(1, size + 1, dtype="u4"), "steps": np.zeros(size, "i4")},
        scalars={"most": _STEPS},
        body="""int i = kk_item();
uint v = value[i];
int done = 0;
while (v != 1u && done < most) {
  v = (v & 1u) != 0u ? 3u * v + 1u : v >> 1;
  done++;
}
value_next[i] = v;
steps_next[i] = steps[i] + done;""",
    )


def _collatz_reference(program: StateProgram, iterations: int | None) -> _Arrays:
    value, steps = program.state["value"].copy(), program.state["steps"].copy()
    for _ in range((iterations or 0) * int(program.scalars["most"])):
        under_way = value != 1
        if not under_way.any():
            break
        value = np.where(under_way, np.where(value & 1, 3 * value + 1, value >> 1), value).astype("u4")
        steps += under_way
    return {"value": value, "steps": steps}


# --- queue: the Mandelbrot set in tiles; one whose border is all alike is filled, a small one computed, any other split

_TILE, _SMALL = 32, 4
_LIMIT = 48  # rounds until a point counts as inside


def _tiles(size: int) -> StateProgram:
    starts = np.arange(0, size, _TILE, dtype="i4")
    y, x = (grid.ravel() for grid in np.meshgrid(starts, starts, indexing="ij"))
    # Fixed point with 12 bits behind it, so that every backend gets the same counts: (6.5 · 2¹²)² still fits in 31 bits.
    return StateProgram(
        "tiles",
        coupling="queue",
        state={"rounds": np.full((size, size), -1, "i4"), "tally": np.zeros(3, "i4")},
        tasks={"x": x, "y": y, "side": np.full(x.size, _TILE, "i4")},
        scalars={"size": size, "small": _SMALL, "limit": _LIMIT},
        queue_capacity=8,
        group=64,
        body="""int right = x + side < size ? x + side : size, bottom = y + side < size ? y + side : size;
if (x >= size || y >= size) return;
bool is_small = side <= small, alike = true;
int seen = -1;
for (int py = y; py < bottom; py++) {
  bool whole_row = is_small || py == y || py == bottom - 1;
  int step = whole_row || right - x < 2 ? 1 : right - x - 1;
  for (int px = x; px < right; px += step) {
    int cx = px * 12288 / size - 9216, cy = py * 12288 / size - 6144;
    int zx = 0, zy = 0, k = 0;
    while (k < limit && zx * zx + zy * zy <= 67108864) {
      int t = (zx * zx - zy * zy) >> 12;
      zy = ((zx * zy) >> 11) + cy;
      zx = t + cx;
      k++;
    }
    if (is_small) rounds[py * size + px] = k;
    else { alike = alike && (seen < 0 || seen == k); seen = k; }
  }
  if (!alike) break;
}
if (is_small) { kk_atomic_add(tally[0], 1); return; }
if (alike) {
  for (int at = 0; at < (right - x) * (bottom - y); at++)
    rounds[(y + at / (right - x)) * size + x + at % (right - x)] = seen;
  kk_atomic_add(tally[1], 1);
  return;
}
kk_atomic_add(tally[2], 1);
int part = side / 2;
kk_push(x, y, part);
kk_push(x + part, y, part);
kk_push(x, y + part, part);
kk_push(x + part, y + part, part);""",
    )


def _escape_rounds(size: int, limit: int) -> np.ndarray[Any, Any]:
    at = np.arange(size, dtype="i4") * np.int32(12288) // np.int32(size)
    cx, cy = np.meshgrid(at - np.int32(9216), at - np.int32(6144))
    rounds: np.ndarray[Any, Any] = np.zeros_like(cx)
    zx, zy = np.zeros_like(cx), np.zeros_like(cx)
    for _ in range(limit):
        inside = zx * zx + zy * zy <= 67108864
        rounds += inside
        t = (zx * zx - zy * zy) >> 12
        zx, zy = np.where(inside, t + cx, zx), np.where(inside, ((zx * zy) >> 11) + cy, zy)
    return rounds


def _tiles_reference(program: StateProgram, iterations: int | None) -> _Arrays:
    size, small, limit = (int(program.scalars[key]) for key in ("size", "small", "limit"))
    exact = _escape_rounds(size, limit)
    rounds, tally = program.state["rounds"].copy(), program.state["tally"].copy()
    tasks = [tuple(int(v) for v in task) for task in zip(*program.tasks.values(), strict=True)]
    while tasks:
        x, y, side = tasks.pop()
        tile = exact[y : y + side, x : x + side]
        if not tile.size:
            continue
        border = np.concatenate((tile[0], tile[-1], tile[:, 0], tile[:, -1]))
        if side <= small:
            rounds[y : y + side, x : x + side] = tile
            tally[0] += 1
        elif (border == border[0]).all():
            rounds[y : y + side, x : x + side] = border[0]
            tally[1] += 1
        else:
            part = side // 2
            tally[2] += 1
            tasks += [(x, y, part), (x + part, y, part), (x, y + part, part), (x + part, y + part, part)]
    return {"rounds": rounds, "tally": tally}


# Rounding differs where a device fuses a multiplication and an addition; diffusion does not amplify it.
HEAT = StateSample("heat", _heat, _heat_reference, size=23, iterations=60, tolerance=1e-5)
SCRAMBLE = StateSample("scramble", _scramble, _scramble_reference, size=333, iterations=61)
COLLATZ = StateSample("collatz", _collatz, _collatz_reference, size=501, iterations=15)
TILES = StateSample("tiles", _tiles, _tiles_reference, size=75, iterations=None)

STATE_SAMPLES = (HEAT, SCRAMBLE, COLLATZ, TILES)
