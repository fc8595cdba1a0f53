"""About how long gemm's variants take on a GPU, to choose among them where nothing was measured.

A group walks along k in steps. A processor holds a few groups at a time, and takes for a step of all of them as long as one
step lasts (`step`: it waits for memory), or as long as their work takes (`work` each), whichever is longer. It does so once for
every batch of groups it has to hold, and each batch has a beginning and an end (`batch`). `launch` is what is left of a kernel
without steps. `costs.jsonl` has these figures in microseconds for the variants that are worth choosing, *even* for n and k that
are multiples of four and *odd* for others: fitted to measurements on an H200 by `benchmarks/gemm_costs.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from . import sliced, tiled

if TYPE_CHECKING:
    from ...devices.base import Device

_TEMPLATES: dict[str, Any] = {"tiled": tiled, "sliced": sliced}
_PROCESSORS = 64  # where the driver does not say
_CACHED_BYTES = 32e6  # what stays in the device's cache from launch to launch
_CACHE_SPEED, _MEMORY_SPEED = 6.0e6, 3.6e6  # bytes a microsecond


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
        cost = _costs(self._kind).get(_key(variant))
        return None if cost is None else estimate(self._kind, cost, problem, _processors(device)) * 1e-3

    def best(self, device: Device, problem: Mapping[str, Any]) -> Mapping[str, Any] | None:
        template, limits, processors = _TEMPLATES[self._kind], device.capabilities, _processors(device)
        found = [
            (estimate(self._kind, cost, problem, processors), place, cost.variant)
            for place, cost in enumerate(_costs(self._kind).values())
            if template.shared_bytes(cost.variant) <= limits.shared_bytes
            and template.group(cost.variant) <= limits.max_group_items
        ]
        return min(found)[2] if found else None


def estimate(kind: str, cost: Cost, problem: Mapping[str, Any], processors: int) -> float:
    """Microseconds of a variant on a device with so many processors."""
    m, n, k = problem["m"], problem["n"], problem["k"]
    across, down = _TEMPLATES[kind].grid({"m": m, "n": n, "k": k, **cost.variant})
    each = ceil(across * down / processors)
    uneven = (n % 4 != 0) + (k % 4 != 0)
    bytes_moved = 4 * (m * k + k * n + m * n)
    least = bytes_moved / (_CACHE_SPEED if bytes_moved <= _CACHED_BYTES else _MEMORY_SPEED)
    times = ([cost.even], [cost.even, cost.odd], [cost.odd])[uneven]
    took = [took_by(one, cost.resident, steps(kind, cost.variant, k), each) for one in times]
    return max(sum(took) / len(took), least)


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


def _processors(device: Device) -> int:
    return device.count_processors() or _PROCESSORS


def _key(variant: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(sorted(variant.items()))


@lru_cache
def _costs(kind: str) -> dict[tuple[Any, ...], Cost]:
    """The variants of a template by their values."""
    found = {}
    for line in (files(__package__) / "costs.jsonl").read_text().splitlines():
        item = json.loads(line)
        if item["kind"] == kind:
            cost = Cost(item["variant"], item["resident"], Times(*item["even"]), Times(*item["odd"]))
            found[_key(cost.variant)] = cost
    return found
