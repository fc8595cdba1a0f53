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
from math import ceil, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from . import sliced, tiled

if TYPE_CHECKING:
    from ...devices.base import Device

_TEMPLATES: dict[str, Any] = {"tiled": tiled, "sliced": sliced}
MODELLED = tuple(_TEMPLATES)  # the kinds of templates that the model knows
_PROCESSORS = 64  # where the driver does not say
_CACHED_BYTES = 32e6  # what stays in the device's cache from launch to launch
_CACHE_SPEED, _MEMORY_SPEED = 6.0e6, 4.0e6  # bytes a microsecond
OVERLAP = 3


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


class GemmModel:
    """A `TimeModel` of one of gemm's templates."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def milliseconds(self, device: Device, problem: Mapping[str, Any], variant: Mapping[str, Any]) -> float | None:
        cost = costs(self._kind).get(_key(variant))
        return None if cost is None else estimate(self._kind, cost, problem, _processors(device)) * 1e-3

    def best(self, device: Device, problem: Mapping[str, Any]) -> Mapping[str, Any] | None:
        template, limits, processors = _TEMPLATES[self._kind], device.capabilities, _processors(device)
        found = [
            (estimate(self._kind, cost, problem, processors), place, cost.variant)
            for place, cost in enumerate(costs(self._kind).values())
            if suits(self._kind, cost.variant, problem["m"], problem["n"])
            and template.shared_bytes(cost.variant) <= limits.shared_bytes
            and template.group(cost.variant) <= limits.max_group_items
        ]
        return min(found)[2] if found else None


def estimate(kind: str, cost: Cost, problem: Mapping[str, Any], processors: int) -> float:
    """Microseconds of a variant on a device with so many processors."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    uneven = (n % 4 != 0) + (k % 4 != 0)
    times = ([cost.even], [cost.even, cost.odd], [cost.odd])[uneven]
    each = ceil(prod(_TEMPLATES[kind].grid({"m": m, "n": n, "k": k, **cost.variant})) / processors)
    took = [took_by(one, cost.resident, steps(kind, cost.variant, k), each) for one in times]
    return together(sum(took) / len(took), *memory_times(kind, cost.variant, m, n, k))


def together(*times: float) -> float:
    """What several parts of a kernel take that overlap, if not quite."""
    return float(sum(time**OVERLAP for time in times) ** (1 / OVERLAP))


def memory_times(kind: str, variant: Mapping[str, int], m: int, n: int, k: int) -> tuple[float, float]:
    """Microseconds in which the cache delivers what all groups read, and the memory what is read at all."""
    rows, columns = block(kind, variant)
    across, down = ceil(n / columns), ceil(m / rows)
    # Memory is read in sectors of 32 bytes. A row of B that begins anywhere takes one more.
    sectors = ceil(min(columns, n) / 8) + (n % 8 != 0 and columns < n)
    read = 4 * across * m * k + 32 * sectors * across * down * k
    bytes_moved = 4 * (m * k + k * n + m * n)
    speed = _CACHE_SPEED if bytes_moved <= _CACHED_BYTES else _MEMORY_SPEED
    return read / _CACHE_SPEED, bytes_moved / speed


def suits(kind: str, variant: Mapping[str, int], m: int, n: int) -> bool:
    """Whether a variant may be the best for such a C at all; the others were not measured on one like it."""
    rows, columns = block(kind, variant)
    groups = ceil(m / rows) * ceil(n / columns)
    if kind == "tiled":
        wasted = (rows > 16 and rows >= 4 * m) or (columns > 16 and columns >= 4 * n)
        return not wasted and not (rows * columns >= 4096 and groups < 8)
    each = variant["COLS"]
    wasted = (rows > 1 and rows >= 2 * m) or (columns > 1 and columns >= 4 * n) or (each == 4 and n == 1)
    too_narrow = (each < 4 and n > 2 * each) or (m >= 8 and n >= 8 and rows < 4)
    return not wasted and not too_narrow and (rows == 16 or m * n <= 1 << 19)


def block(kind: str, variant: Mapping[str, int]) -> tuple[int, int]:
    """The rows and columns of C that a group computes."""
    if kind == "tiled":
        return variant["BLOCK_M"], variant["BLOCK_N"]
    return variant["ROWS"], variant["LANES"] * variant["COLS"]


def took_by(times: Times, resident: int, count: int, each: int) -> float:
    """Microseconds of a processor with `each` groups of `count` steps."""
    whole, rest = divmod(each, resident)
    stepping = whole * max(times.step, times.work * resident) + (rest and max(times.step, times.work * rest))
    return times.launch + count * stepping + times.batch * (whole + (rest > 0) - 1)


def steps(kind: str, variant: Mapping[str, int], k: int) -> int:
    """How many steps a group takes along k."""
    if kind == "tiled":
        return ceil(k / variant["DEPTH"])
    return ceil(k / (variant["STEP"] * (variant["ITEMS"] // variant["LANES"])))


def template(kind: str) -> Any:
    """The module that describes a kind."""
    return _TEMPLATES[kind]


def _processors(device: Device) -> int:
    return device.count_processors() or _PROCESSORS


def _key(variant: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(variant.items()))


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
