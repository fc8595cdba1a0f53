"""About how long gemm's variants take on a GPU, to choose among them where nothing was measured.

A group walks along k in steps. A processor holds a few groups at a time, and takes for a step of all of them as long as one
step lasts (`step`: it waits for memory), or as long as their work takes (`work` each), whichever is longer. It does so once for
every batch of groups it has to hold, and each batch has a beginning and an end (`batch`). `launch` is what is left of a kernel
without steps. Beside that stand the time in which the device's cache delivers what all groups read, and that in which its memory
delivers what is read at all. None of the three hides behind the others quite.

`costs.jsonl` has the figures in microseconds for the variants that are worth choosing, *even* for n and k that are multiples of
four and *odd* for others: fitted to measurements on an H200 by `benchmarks/gemm_costs.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from . import single_warps, sliced, tiled
from .tensor_single import BLOCK_N as _TENSOR_COLUMNS
from .tensor_single import DEPTH as _TENSOR_DEPTH

if TYPE_CHECKING:
    from ...devices.base import Device

_TEMPLATES: dict[str, Any] = {"tiled": tiled, "sliced": sliced, "warps": single_warps}
MODELLED = tuple(_TEMPLATES)  # the kinds of templates that the model knows
_PROCESSORS = 64  # where the driver does not say
_CACHED_BYTES = 32e6  # what stays in the device's cache from launch to launch
_CACHE_SPEED, _MEMORY_SPEED = 6.0e6, 4.0e6  # bytes a microsecond
# The part of the processors on which clusters of so many groups find a place: a cluster's groups are neighbours.
_FILLED = {1: 1.0, 2: 1.0, 4: 0.95, 8: 0.92}
OVERLAP = 3
# Of the template for large products on an H200: the beginning and the end, and a step by the rows of a tile.
_TENSOR_LAUNCH, _TENSOR_STEP = 4.5, {64: 0.62, 128: 0.97}


class Times(NamedTuple):
    """A variant's figures, in microseconds."""

    launch: float
    step: float
    work: float
    batch: float


class Cost(NamedTuple):
    """A variant, how many of its groups a processor holds, and its figures."""

    variant: dict[str, int]
    resident: int
    even: Times
    odd: Times


class Tile(NamedTuple):
    """The rows and columns of C that a group computes, how far it goes along k in a step, and how many groups share that way."""

    rows: int
    columns: int
    depth: int
    shared_by: int


class GemmModel:
    """A `TimeModel` of one of gemm's templates."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def milliseconds(self, device: Device, problem: Mapping[str, Any], variant: Mapping[str, Any]) -> float | None:
        cost = costs(self._kind).get(_key(variant))
        return None if cost is None else estimate(self._kind, cost, problem, _processors(device)) * 1e-3

    def best(self, device: Device, problem: Mapping[str, Any]) -> Mapping[str, Any] | None:
        limits, processors, kind = device.capabilities, _processors(device), self._kind
        m, n = problem["m"], problem["n"]
        found, least = None, float("inf")
        for cost, tile in _fitting(kind, limits.shared_bytes, limits.max_group_items):
            if _suits(kind, cost.variant, tile, m, n):
                time = _estimate(cost, tile, problem, processors)
                if time < least:
                    found, least = cost.variant, time
        return found


class TensorModel:
    """A `TimeModel` of the template for large products: a processor computes one tile after the other."""

    def milliseconds(self, device: Device, problem: Mapping[str, Any], variant: Mapping[str, Any]) -> float | None:
        tile = Tile(variant["BLOCK_M"], _TENSOR_COLUMNS, _TENSOR_DEPTH, variant["SLICES"])
        each = groups_each(tile, problem["m"], problem["n"], min(_processors(device), variant["GROUPS"]))
        return (_TENSOR_LAUNCH + each * steps(tile, problem["k"]) * _TENSOR_STEP[tile.rows]) * 1e-3

    def best(self, device: Device, problem: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return None  # the template has a rule of its own


def estimate(kind: str, cost: Cost, problem: Mapping[str, Any], processors: int) -> float:
    """Microseconds of a variant on a device with so many processors."""
    return _estimate(cost, tile_of(kind, cost.variant), problem, processors)


def _estimate(cost: Cost, tile: Tile, problem: Mapping[str, Any], processors: int) -> float:
    m, n, k = problem["m"], problem["n"], problem["k"]
    each, count = groups_each(tile, m, n, processors), steps(tile, k)
    uneven = (n % 4 != 0) + (k % 4 != 0)
    if uneven == 1:
        took = (took_by(cost.even, cost.resident, count, each) + took_by(cost.odd, cost.resident, count, each)) / 2
    else:
        took = took_by(cost.odd if uneven else cost.even, cost.resident, count, each)
    return together(took, *memory_times(tile, m, n, k))


def together(*times: float) -> float:
    """What several parts of a kernel take that overlap, if not quite."""
    total = 0.0
    for time in times:
        total += time**OVERLAP
    return float(total ** (1 / OVERLAP))


def memory_times(tile: Tile, m: int, n: int, k: int) -> tuple[float, float]:
    """Microseconds in which the cache delivers what all groups read, and the memory what is read at all."""
    across, down = -(-n // tile.columns), -(-m // tile.rows)
    # Memory is read in sectors of 32 bytes. A row of B that begins anywhere takes one more.
    sectors = -(-min(tile.columns, n) // 8) + (n % 8 != 0 and tile.columns < n)
    read = 4 * across * m * k + 32 * sectors * across * down * k
    bytes_moved = 4 * (m * k + k * n + m * n)
    speed = _CACHE_SPEED if bytes_moved <= _CACHED_BYTES else _MEMORY_SPEED
    return read / _CACHE_SPEED, bytes_moved / speed


def suits(kind: str, variant: Mapping[str, int], m: int, n: int) -> bool:
    """Whether a variant may be the best for such a C at all; the others were not measured on one like it."""
    return _suits(kind, variant, tile_of(kind, variant), m, n)


def _suits(kind: str, variant: Mapping[str, int], tile: Tile, m: int, n: int) -> bool:
    rows, columns = tile.rows, tile.columns
    if kind != "sliced":
        if (rows > 16 and rows >= 4 * m) or (columns > 16 and columns >= 4 * n):
            return False
        return kind == "warps" or rows * columns < 4096 or -(-m // rows) * -(-n // columns) >= 8
    each = variant["COLS"]
    wasted = (rows > 1 and rows >= 2 * m) or (columns > 1 and columns >= 4 * n) or (each == 4 and n == 1)
    too_narrow = (each < 4 and n > 2 * each) or (m >= 8 and n >= 8 and rows < 4)
    return not wasted and not too_narrow and (rows == 16 or m * n <= 1 << 19)


def tile_of(kind: str, variant: Mapping[str, int]) -> Tile:
    """What a group computes."""
    if kind == "sliced":
        lanes, columns = variant["LANES"], variant["LANES"] * variant["COLS"]
        return Tile(variant["ROWS"], columns, variant["STEP"] * (variant["ITEMS"] // lanes), 1)
    shared_by = variant["SLICES"] if kind == "warps" else 1
    return Tile(variant["BLOCK_M"], variant["BLOCK_N"], variant["DEPTH"], shared_by)


def groups_each(tile: Tile, m: int, n: int, processors: int) -> int:
    """How many groups the busiest processor computes."""
    groups = -(-m // tile.rows) * -(-n // tile.columns) * tile.shared_by
    return ceil(groups / (processors * _FILLED[tile.shared_by]))


def steps(tile: Tile, k: int) -> int:
    """How many steps a group takes along k."""
    return -(-k // (tile.depth * tile.shared_by))


def took_by(times: Times, resident: int, count: int, each: int) -> float:
    """Microseconds of a processor with `each` groups of `count` steps."""
    whole, rest = divmod(each, resident)
    stepping = whole * max(times.step, times.work * resident) + (rest and max(times.step, times.work * rest))
    return times.launch + count * stepping + times.batch * (whole + (rest > 0) - 1)


def _processors(device: Device) -> int:
    return device.count_processors() or _PROCESSORS


def _key(variant: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(variant.items()))


@lru_cache
def _fitting(kind: str, shared_bytes: int, items: int) -> list[tuple[Cost, Tile]]:
    """The variants of a template that a device with such groups can run."""
    template = _TEMPLATES[kind]
    return [
        (cost, tile_of(kind, cost.variant))
        for cost in costs(kind).values()
        if template.shared_bytes(cost.variant) <= shared_bytes and template.group(cost.variant) <= items
    ]


@lru_cache
def costs(kind: str) -> dict[tuple[Any, ...], Cost]:
    """The variants of a template by their values."""
    found = {}
    for line in (files(__package__) / "costs.jsonl").read_text().splitlines():
        item = json.loads(line)
        if item["kind"] == kind:
            cost = Cost(item["variant"], item["resident"], Times(*item["even"]), Times(*item["odd"]))
            found[_key(cost.variant)] = cost
    return found
