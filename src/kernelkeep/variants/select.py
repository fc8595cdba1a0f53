"""Which variant to run, and why. Based on records of this problem, of a similar one, or of a similar device; else the default.

A record counts only while the template still writes the very source that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ..words import SelectionBasis
from .known_failures import KnownFailures, why_failed
from .measure import spread
from .record import Choice, Record
from .space import Variant
from .values import in_words

_OTHER_CONSTANT = 1.0  # a different constant counts as much as a size twice as large
_TIE = 0.03
_MODEL_MARGIN = 0.1  # by which a model must expect another variant to be faster than a measured neighbour's


class Selection(msgspec.Struct, frozen=True):
    """The variant to run. `reason` is for people; `basis` is its short form, one of pinned, deterministic, exact, nearest,
    architecture, model, default and untried (the default is known to fail, and this one was never tried).

    `expected_ms` is a measurement where `distance` is 0, else an estimate from the nearest problem or by the kernel's model,
    and None where there is neither. No estimate is below the time in which the device's memory can move the arrays.
    `distance` counts doublings between this problem and the one that was measured.
    """

    variant: Variant
    reason: str
    expected_ms: float | None
    distance: float | None
    basis: SelectionBasis

    def _repr_html_(self) -> str:
        from .html import selection_html

        return selection_html(self)


class Knowledge(msgspec.Struct, frozen=True):
    """Everything a selection is made from, for one tuned kernel, one device and one problem."""

    name: str
    device_name: str
    architecture: str
    problem: Mapping[str, Any]
    here: list[Record]  # of this device
    alike: list[Record]  # of devices of the same architecture
    choices: list[Choice]  # on this device
    default: Variant
    fits: Callable[[Record], bool]  # the space allows it for this problem, and its source is today's
    # These return None for a problem of a record that the kernel cannot have.
    work: Callable[[Mapping[str, Any]], float | None]
    compiled_in: Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
    failures: KnownFailures
    others: Callable[[], Iterator[Variant]]  # all but the default, those most like it first
    deterministic: bool = False  # measurements do not count
    # How long a variant takes on a problem, as far as a model knows; and the least time for the bytes of this one.
    estimate: Callable[[Mapping[str, Any], Mapping[str, Any]], float | None] = lambda problem, variant: None
    least_ms: float = 0.0


def select(known: Knowledge) -> Selection:
    """The fastest variant known for the problem, or the best guess. Never one that is known to fail: where all did, that
    is a `VariantError`."""
    choice = next((choice for choice in known.choices if choice.problem == known.problem), None)
    if choice is not None and choice.pinned:
        return _pinned(Variant(choice.variant), known)
    if known.deterministic:
        if known.failures.is_for_this_problem(known.failures.failure_of(known.default)):
            raise known.failures.error(
                known.name, known.device_name, f"{known.default}, the default of {known.name}, which alone may run,"
            )
        reason = f"{known.default} is the default, and measurements do not count"
        return Selection(known.default, reason, None, None, "deterministic")
    tiers: tuple[tuple[list[Record], SelectionBasis], ...] = ((known.here, "exact"), (known.alike, "architecture"))
    for records, basis in tiers:
        for problem, far in _problems(records, known):
            there = [r for r in records if r.problem == problem and not r.failure]
            if basis == "exact":
                # Decided when all were measured side by side; medians of different days do not overrule that.
                decided = [c.variant for c in known.choices if c.problem == problem and not c.pinned]
                there = [r for r in there if r.variant in decided and _is_usable(r, known)] or there
            best = _fastest_fitting(there, known)
            if best is not None and best.median_ms is not None:
                if far and _is_overruled(best, known):
                    break
                return _found(best, known, far, basis if basis == "architecture" or not far else "nearest")
    return _unmeasured(known)


def _is_overruled(best: Record, known: Knowledge) -> bool:
    """Whether the model expects the default to be clearly faster here than what was fastest for another problem."""
    default, other = known.estimate(known.problem, known.default), known.estimate(known.problem, best.variant)
    if default is None or known.failures.failure_of(known.default) is not None:
        return False
    return other is None or default * (1 + _MODEL_MARGIN) < other


def _pinned(variant: Variant, known: Knowledge) -> Selection:
    if known.failures.is_for_this_problem(known.failures.failure_of(variant)):
        raise known.failures.error(known.name, known.device_name, f"{variant}, which is pinned for {known.name},")
    at = next((r for r in known.here if r.problem == known.problem and variant == r.variant), None)
    expected = None if at is None else at.median_ms
    return Selection(variant, f"{variant} was pinned for this problem", expected, 0.0, "pinned")


def _unmeasured(known: Knowledge) -> Selection:
    """The default; where it failed, what is most like it and did not."""
    default, failures = known.default, known.failures
    failure = failures.failure_of(default)
    if failure is None:
        estimate = known.estimate(known.problem, default)
        if estimate is not None:
            reason = f"{default} is expected to be the fastest for this problem, which was never measured; tune() would"
            return Selection(default, reason, max(estimate, known.least_ms), None, "model")
        reason = (
            f"{default} is the default: nothing was measured on {known.device_name} or on another "
            f"{known.architecture}; tune() would"
        )
        old = failures.outdated_failure_of(default)
        if old is not None:
            reason = f"{default} is the default; it failed ({why_failed(old)}), before the reference or tolerance was changed"
        return Selection(default, reason, None, None, "default")
    suspect = None if failures.is_for_this_problem(failure) else (default, failure)
    for variant in known.others():
        found = failures.failure_of(variant)
        if found is None:
            reason = f"{variant} was never tried, and the default {default} failed ({why_failed(failure)}); tune() would try all"
            return Selection(variant, reason, None, None, "untried")
        if suspect is None and not failures.is_for_this_problem(found):
            suspect = variant, found
    if suspect is None:
        raise failures.error(known.name, known.device_name)
    variant, found = suspect
    reason = (
        f"{variant} was never tried for this problem, and failed for {in_words(found.problem)} ({why_failed(found)}); "
        "nothing is known to be right"
    )
    return Selection(variant, reason, None, None, "default" if variant == default else "untried")


def _fastest_fitting(records: list[Record], known: Knowledge) -> Record | None:
    """Like `fastest`, but checks as few as possible, because that takes rendering their source."""
    for record in sorted(records, key=lambda record: record.median_ms or math.inf):
        if record.median_ms is not None and _is_usable(record, known):
            return record
    return None


def _is_usable(record: Record, known: Knowledge) -> bool:
    return known.fits(record) and known.failures.failure_of(Variant(record.variant)) is None


def fastest(records: Iterable[Record], incumbent: Variant | None = None) -> Record | None:
    """The fastest of those that did not fail; the incumbent where that is a tie."""
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
    """The measured problems and their distances, the nearest first."""
    seen: dict[str, tuple[Mapping[str, Any], float]] = {}
    for record in records:
        if not record.failure:
            text = repr(sorted(record.problem.items()))
            if text not in seen:
                far = distance_between(known.problem, record.problem)
                if 0 < far < math.inf:
                    one, other = known.compiled_in(known.problem), known.compiled_in(record.problem)
                    if one is None or other is None:
                        continue
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


def _found(best: Record, known: Knowledge, far: float, basis: SelectionBasis) -> Selection:
    variant, milliseconds = Variant(best.variant), best.median_ms or 0.0
    there = f"{milliseconds:.4g} ms over {_samples(len(best.samples_ms))}"
    if basis == "exact":
        reason = f"{variant} was the fastest for this problem on this device: {there}"
        choice = next((choice for choice in known.choices if choice.problem == known.problem), None)
        if choice is not None and variant == choice.variant and "tie" in choice.reason:
            reason = f"{variant} is kept for this problem: {there}; {choice.reason}"
        return Selection(variant, reason, milliseconds, 0.0, basis)
    expected = max(milliseconds * _scale(best, known), known.least_ms) if far else milliseconds
    problem = "this problem" if not far else f"the nearest problem measured ({in_words(best.problem)})"
    where = (
        "on this device" if basis == "nearest" else f"on {best.device_name}, which is {known.architecture} as this one"
    )
    reason = f"{variant} was the fastest for {problem} {where}: {there}"
    return Selection(variant, reason, expected, far, basis)


def _scale(best: Record, known: Knowledge) -> float:
    """How many times as long this problem takes as another: by the model, else by the amount of work."""
    here, there = known.estimate(known.problem, best.variant), known.estimate(best.problem, best.variant)
    if here is None or there is None:
        here, there = known.work(known.problem), known.work(best.problem)
    return here / there if here and there and there > 0 else 1.0


def _samples(count: int) -> str:
    return f"{count} samples" if count != 1 else "one sample"
