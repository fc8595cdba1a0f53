"""What a snapshot means as metrics: names, types, units, labels and help texts. Knows no library.

Counts of open and of closed objects are added up by their labels, so a counter never goes back when a cache is closed. Gauges are
of what is open now.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from .. import __version__
from ..execution.timeline import ENGINES

Labels = tuple[str, ...]


class HistogramValue(NamedTuple):
    """How many values fell into each interval below a bound, and beyond the last; and their sum."""

    bounds: list[float]
    counts: list[int]
    sum: float


@dataclass(frozen=True)
class Metric:
    """A metric with its values, by the values of its labels."""

    name: str  # without _total
    type: Literal["counter", "gauge", "histogram", "info"]
    help: str
    labels: Labels = ()
    values: dict[Labels, Any] = field(default_factory=dict)


class _Source(NamedTuple):
    """Where a value comes from: a field of `counts`, `now` or `histograms`, and what it adds to the labels."""

    where: Literal["counts", "now", "histograms", "object"]
    field: str
    extra: Labels = ()


class _Definition(NamedTuple):
    kind: str
    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    sources: tuple[_Source, ...]
    extra_labels: Labels = ()
    merge: Callable[[float, float], float] = lambda one, other: one + other


# The labels of each kind: what they are called in metrics, and in `about`.
_LABELS = {
    "cache": {"device": "device"},
    "executor": {"device": "device"},
    "run": {"device": "device", "program": "name"},
    "resident": {"device": "device"},
    "preload": {"device": "device"},
    "tuning": {"device": "device", "kernel": "name"},
}


def _count(kind: str, name: str, help: str, *fields: str) -> _Definition:
    return _Definition(kind, name, "counter", help, tuple(_Source("counts", one) for one in fields))


def _counts(kind: str, name: str, help: str, label: str, fields: dict[str, str]) -> _Definition:
    """A counter with one more label: its value for each field."""
    sources = tuple(_Source("counts", one, (value,)) for one, value in fields.items())
    return _Definition(kind, name, "counter", help, sources, (label,))


def _gauge(kind: str, name: str, help: str, one: str) -> _Definition:
    return _Definition(kind, name, "gauge", help, (_Source("now", one),))


def _largest(kind: str, name: str, help: str, one: str) -> _Definition:
    """A gauge of which several objects with the same labels show the largest."""
    return _Definition(kind, name, "gauge", help, (_Source("now", one),), merge=max)


def _open(kind: str, name: str, help: str) -> _Definition:
    return _Definition(kind, name, "gauge", help, (_Source("object", ""),))


def _histogram(kind: str, name: str, help: str, one: str) -> _Definition:
    return _Definition(kind, name, "histogram", help, (_Source("histograms", one),))


_TIERS = {f"hits_{tier}": tier for tier in ("memory", "disk", "remote")}
_ENGINES = {f"{engine}_busy_seconds": engine for engine in ENGINES}
_REMOTE = {f"remote_{event}": event for event in ("stored", "refused", "failed", "skipped", "dropped")}

_DEFINITIONS = (
    _open("cache", "kernelkeep_caches", "Program caches that are open."),
    _counts("cache", "kernelkeep_cache_hits", "Lookups that needed no compiler, by the tier that had it.", "tier", _TIERS),
    _count("cache", "kernelkeep_cache_misses", "Lookups for which the compiler was called.", "misses"),
    _count("cache", "kernelkeep_cache_compile_errors", "Compiles that failed.", "compile_errors"),
    _histogram("cache", "kernelkeep_cache_compile_seconds", "How long compiles that succeeded took.", "compile_seconds"),
    _histogram("cache", "kernelkeep_cache_load_seconds", "How long it took to load programs from a tier.", "load_seconds"),
    _count("cache", "kernelkeep_cache_compile_saved_seconds", "Compile time that hits on disk and remote hits saved.",
           "compile_seconds_saved"),
    _count("cache", "kernelkeep_cache_waits", "Lookups that waited for somebody else's compile.", "waits"),
    _count("cache", "kernelkeep_cache_evictions", "Idle programs that were taken out of memory.", "evictions"),
    _count("cache", "kernelkeep_cache_corrupt_entries", "Entries that failed their check, or that the driver refused.",
           "corrupt_entries"),
    _counts("cache", "kernelkeep_cache_remote_events", "What happened with shared stores.", "event", _REMOTE),
    _gauge("cache", "kernelkeep_cache_programs", "Programs that are loaded.", "programs"),
    _gauge("cache", "kernelkeep_cache_program_bytes", "Bytes of the programs that are loaded.", "memory_bytes"),
    _gauge("cache", "kernelkeep_cache_compiling", "Compiles that go on now.", "compiling"),
    _open("executor", "kernelkeep_executors", "Executors that are open."),
    _counts("executor", "kernelkeep_executor_batches", "Batches that are over.", "outcome",
            {"batches": "done", "failed_batches": "failed"}),
    _histogram("executor", "kernelkeep_executor_batch_seconds", "From the copy of a batch's arrays to its result.",
               "batch_seconds"),
    _counts("executor", "kernelkeep_executor_busy_seconds", "How long each engine of the device was busy.", "engine", _ENGINES),
    _gauge("executor", "kernelkeep_executor_queued_batches", "Batches that wait for a slot.", "queued"),
    _gauge("executor", "kernelkeep_executor_in_flight_batches", "Batches that are on the device.", "in_flight"),
    _open("run", "kernelkeep_runs", "Continuous runs that go on."),
    _count("run", "kernelkeep_run_iterations", "Iterations that were committed.", "iterations"),
    _count("run", "kernelkeep_run_dispatches", "Dispatches of continuous runs.", "dispatches"),
    _count("run", "kernelkeep_run_late_slices", "Slices that took longer than their deadline.", "late_slices"),
    _count("run", "kernelkeep_run_tasks", "Tasks that were taken from the queue.", "tasks"),
    _counts("run", "kernelkeep_run_checkpoints", "Checkpoints that were written, and those that failed.", "outcome",
            {"checkpoints": "written", "failed_checkpoints": "failed"}),
    _count("run", "kernelkeep_run_checkpoint_bytes", "Bytes of the checkpoints that were written.", "checkpoint_bytes"),
    _histogram("run", "kernelkeep_run_checkpoint_seconds", "How long writing a checkpoint took.", "checkpoint_seconds"),
    _largest("run", "kernelkeep_run_iteration", "The iteration that is committed, from the very beginning.", "iteration"),
    _largest("run", "kernelkeep_run_goal_iterations", "The iteration at which the run ends.", "goal"),
    _largest("run", "kernelkeep_run_checkpoint_age_seconds", "Since the last checkpoint was written.", "checkpoint_age_seconds"),
    _largest("run", "kernelkeep_run_gap_median_seconds", "The gap between two dispatches, the middle one.", "gap_p50_seconds"),
    _largest("run", "kernelkeep_run_gap_p99_seconds", "The gap that 99 of 100 stay below.", "gap_p99_seconds"),
    _largest("run", "kernelkeep_run_busy_ratio", "The share of time in which the device computed.", "busy_share"),
    _open("resident", "kernelkeep_residents", "Resident grids that are open."),
    _gauge("resident", "kernelkeep_residents_alive", "Resident grids that run and take tasks.", "alive"),
    _count("resident", "kernelkeep_resident_tasks", "Tasks that were acknowledged.", "tasks"),
    _count("resident", "kernelkeep_resident_submitted_tasks", "Tasks that were submitted.", "submitted_tasks"),
    _count("resident", "kernelkeep_resident_launches", "Launches of resident grids.", "launches"),
    _gauge("resident", "kernelkeep_resident_queued_tasks", "Tasks in the rings that are not done.", "queued"),
    _open("preload", "kernelkeep_preloads", "Preloads that go on."),
    _count("preload", "kernelkeep_preloaded_programs", "Programs that preloads have loaded, or failed to.", "steps"),
    _open("tuning", "kernelkeep_tunings", "Tunings that go on."),
    _count("tuning", "kernelkeep_tuned_variants", "Variants that tunings have tried.", "steps"),
)  # fmt: skip


def metrics_of(snapshot: dict[str, Any]) -> Iterator[Metric]:
    """The metrics of a process, from what `kernelkeep.activity.live.snapshot` gives. Those without a value are left out."""
    process = snapshot["process"]
    yield Metric(
        "kernelkeep_build",
        "info",
        "The version of kernelkeep.",
        (),
        {(): {"version": __version__, "program": process["program"]}},
    )
    opened, closed = snapshot["open"], snapshot["closed"]
    for one in _DEFINITIONS:
        names = _LABELS[one.kind]
        values: dict[Labels, Any] = {}
        for found in (*opened, *(closed if one.type != "gauge" else ())):
            if found["kind"] != one.kind:
                continue
            labels = tuple(str(found["about"].get(name, "")) for name in names.values())
            for source in one.sources:
                value = _value(found, source)
                if value is not None:
                    key = (*labels, *source.extra)
                    values[key] = _merged(values[key], value, one.merge) if key in values else value
        if values:
            yield Metric(one.name, one.type, one.help, (*names, *one.extra_labels), values)


def all_metrics() -> Iterable[tuple[str, str, Labels, str]]:
    """Name as it is scraped, type, labels and help text of each metric there may be: what the documentation lists."""
    for one in _DEFINITIONS:
        name = f"{one.name}_total" if one.type == "counter" else one.name
        yield name, one.type, (*_LABELS[one.kind], *one.extra_labels), one.help


def _value(found: dict[str, Any], source: _Source) -> Any:
    if source.where == "object":
        return 1.0
    value = found[source.where].get(source.field)
    if source.where == "histograms":
        return None if value is None else HistogramValue(value["bounds"], value["counts"], value["sum"])
    if isinstance(value, list):
        return float(len(value))
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    return None


def _merged(one: Any, other: Any, merge: Callable[[float, float], float]) -> Any:
    if isinstance(one, HistogramValue):
        if one.bounds != other.bounds:
            return one
        return HistogramValue(
            one.bounds, [a + b for a, b in zip(one.counts, other.counts, strict=True)], one.sum + other.sum
        )
    return merge(one, other)
