"""Which variant to run, and why, from what is known: this problem, one like it, a device like this one, or nothing.

A record counts only while the template still renders to the very source that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from .measure import spread
from .record import Choice, Record
from .space import Variant

__all__ = ["Selection", "distance_between", "fastest", "select"]

_OTHER_CONSTANT = 1.0  # something compiled in that differs is as far away as a size twice as large
_TIE = 0.03


class Selection(msgspec.Struct, frozen=True):
    """The variant to run. `reason` is for people; `basis` is its short form, one of pinned, deterministic, exact, nearest,
    architecture and default.

    `expected_ms` is a measurement where `distance` is 0, an estimate from the nearest problem otherwise, and None where
    nothing was ever measured. `distance` counts doublings between this problem and the one that was measured.
    """

    variant: Variant
    reason: str
    expected_ms: float | None
    distance: float | None
    basis: str


class Knowledge(msgspec.Struct, frozen=True):
    """Everything a selection is made from, for one tuned kernel, one device and one problem."""

    name: str
    device_name: str
    architecture: str
    problem: Mapping[str, Any]
    here: list[Record]  # of this device
    alike: list[Record]  # of devices of the same architecture
    choices: list[Choice]  # what was decided on this device
    default: Variant
    fits: Callable[[Record], bool]  # of the space, for this problem, and of the source as it renders today
    work: Callable[[Mapping[str, Any]], float]
    compiled_in: Callable[[Mapping[str, Any]], Mapping[str, Any]]


def select(known: Knowledge) -> Selection:
    """The fastest variant known for the problem, or the best guess."""
    choice = next((choice for choice in known.choices if choice.problem == known.problem), None)
    if choice is not None and choice.pinned:
        variant = Variant(choice.variant)
        at = next((r for r in known.here if r.problem == known.problem and variant == r.variant), None)
        expected = None if at is None else at.median_ms
        return Selection(variant, f"{variant} was pinned for this problem", expected, 0.0, "pinned")
    for records, basis in ((known.here, "exact"), (known.alike, "architecture")):
        for problem, far in _problems(records, known):
            there = [r for r in records if r.problem == problem and not r.failure]
            if basis == "exact":
                # Decided when all were measured side by side; medians of different days do not overrule that.
                decided = [c.variant for c in known.choices if c.problem == problem and not c.pinned]
                there = [r for r in there if r.variant in decided and known.fits(r)] or there
            best = _fastest_fitting(there, known)
            if best is not None and best.median_ms is not None:
                return _found(best, known, far, basis if basis == "architecture" or not far else "nearest")
    reason = (
        f"{known.default} is the default: nothing was measured on {known.device_name} or on another "
        f"{known.architecture}; tune() would"
    )
    failed = [r for r in known.here if r.failure and r.problem == known.problem and known.default == r.variant]
    if failed:
        why = f"{failed[0].failure}: {failed[0].detail}"
        reason = f"{known.default} is the default, though it failed ({why}); none is known to be right"
    return Selection(known.default, reason, None, None, "default")


def _fastest_fitting(records: list[Record], known: Knowledge) -> Record | None:
    """Like `fastest`; asks about few, because to see whether one fits it is rendered."""
    for record in sorted(records, key=lambda record: record.median_ms or math.inf):
        if record.median_ms is not None and known.fits(record):
            return record
    return None


def fastest(records: Iterable[Record], incumbent: Variant | None = None) -> Record | None:
    """The fastest of those that did not fail; the incumbent where it is as fast for all one can tell."""
    measured = [record for record in records if not record.failure and record.median_ms is not None]
    if not measured:
        return None
    best = min(measured, key=lambda record: record.median_ms or 0.0)
    held = next((record for record in measured if incumbent == record.variant), None)
    return held if held is not None and is_tie(held, best) else best


def is_tie(one: Record, best: Record) -> bool:
    """Whether the difference of two medians may be chance."""
    margin = max(_TIE, spread(one.samples_ms) + spread(best.samples_ms))
    return (one.median_ms or math.inf) <= (best.median_ms or 0.0) * (1 + min(margin, 0.15))


def _problems(records: list[Record], known: Knowledge) -> list[tuple[Mapping[str, Any], float]]:
    """The problems measured, the nearest first."""
    seen: dict[str, tuple[Mapping[str, Any], float]] = {}
    for record in records:
        if not record.failure:
            text = repr(sorted(record.problem.items()))
            if text not in seen:
                far = distance_between(known.problem, record.problem)
                if 0 < far < math.inf:
                    one, other = known.compiled_in(known.problem), known.compiled_in(record.problem)
                    far += _OTHER_CONSTANT * sum(other.get(name) != value for name, value in one.items())
                if far < math.inf:
                    seen[text] = record.problem, far
    return sorted(seen.values(), key=lambda found: found[1])


def distance_between(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """How many doublings lie between the sizes of two problems; infinite where they have other names or texts."""
    if one.keys() != other.keys():
        return math.inf
    far = 0.0
    for name, value in one.items():
        against = other[name]
        if value == against:
            continue
        if isinstance(value, str) or isinstance(against, str):
            return math.inf
        far += abs(math.log2((abs(value) + 1) / (abs(against) + 1)))
    return far


def _found(best: Record, known: Knowledge, far: float, basis: str) -> Selection:
    variant, milliseconds = Variant(best.variant), best.median_ms or 0.0
    there = f"{milliseconds:.4g} ms over {_times(len(best.samples_ms))}"
    if basis == "exact":
        reason = f"{variant} was the fastest for this problem on this device: {there}"
        choice = next((choice for choice in known.choices if choice.problem == known.problem), None)
        if choice is not None and variant == choice.variant and "tie" in choice.reason:
            reason = f"{variant} is kept for this problem: {there}; {choice.reason}"
        return Selection(variant, reason, milliseconds, 0.0, basis)
    scale = known.work(known.problem) / max(known.work(best.problem), 1e-300) if far else 1.0
    expected = milliseconds * scale
    problem = "this problem" if not far else f"the nearest problem measured ({_words(best.problem)})"
    where = (
        "on this device" if basis == "nearest" else f"on {best.device_name}, which is {known.architecture} as this one"
    )
    reason = f"{variant} was the fastest for {problem} {where}: {there}"
    return Selection(variant, reason, expected, far, basis)


def _words(problem: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in problem.items())


def _times(count: int) -> str:
    return f"{count} samples" if count != 1 else "one sample"
