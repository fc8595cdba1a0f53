"""What is known against variants. A variant that failed is not run; where all of them failed, that is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import VariantError
from .record import Record
from .space import Variant

__all__ = ["Verdicts", "still_counts", "why_failed"]

_OF_THE_PROGRAM = ("wrong", "guard")  # a program that computes something wrong is suspect at every size
_RIGHT = ("", "slow")  # "slow" was found right, and only given up


def still_counts(record: Record, tolerance: float, reference: str) -> bool:
    """Whether a verdict needs no new trial: a tolerance or a reference that was changed since may change it."""
    if record.failure:
        # Most often it was the reference that was wrong, and it has been mended.
        same = record.tolerance >= tolerance and record.reference == reference
        return record.failure != "wrong" or same
    return bool(record.samples_ms) and record.verified and record.tolerance <= tolerance


def why_failed(record: Record) -> str:
    """The class of a failure and its sentence."""
    return f"{record.failure}: {record.detail}" if record.detail else record.failure


class Verdicts:
    """The failures of a tuned kernel's variants on one device, seen from one problem.

    `digest_of(variant)` is the hash of a variant's source for this problem as it renders today, or None where the device
    cannot have it. A record of another source says nothing.
    """

    def __init__(
        self,
        records: Iterable[Record],
        problem: Mapping[str, Any],
        digest_of: Callable[[Variant], str | None],
        counts: Callable[[Record], bool],
    ) -> None:
        self._problem = problem
        self._digest_of = digest_of
        self._here: dict[Variant, list[Record]] = {}
        self._elsewhere: dict[str, Record] = {}  # by the source
        for record in records:
            if record.problem == problem:
                self._here.setdefault(Variant(record.variant), []).append(record)
            elif record.failure in _OF_THE_PROGRAM and counts(record):
                self._elsewhere[record.source] = record
        self._counts = counts

    def against(self, variant: Variant) -> Record | None:
        """How it failed for this problem; or, where it was never tried for this problem, how its program failed for another.

        None for a variant of which nothing bad is known.
        """
        here = self._here.get(variant)
        if here is None and not self._elsewhere:
            return None
        digest = self._digest_of(variant)
        tried = next((record for record in here or () if record.source == digest), None)
        if tried is not None:
            return None if tried.failure in _RIGHT or not self._counts(tried) else tried
        return None if digest is None else self._elsewhere.get(digest)

    def condemns(self, record: Record | None) -> bool:
        """Whether what `against` found is about this very problem."""
        return record is not None and record.problem == self._problem

    def outdated(self, variant: Variant) -> Record | None:
        """A failure for this problem that does not count any more."""
        failed = (record for record in self._here.get(variant, ()) if record.failure not in _RIGHT)
        return next((record for record in failed if not self._counts(record)), None)

    def error(self, name: str, device_name: str, what: str = "") -> VariantError:
        """Every variant failed, with the first failure of each class; or one that must run did, which `what` names."""
        failed = [
            record
            for variant, records in self._here.items()
            if (record := self.against(variant)) is not None and self.condemns(record)
        ]
        seen: dict[str, list[Record]] = {}
        for record in failed:
            seen.setdefault(record.failure, []).append(record)
        said = "; ".join(
            f"{len(records)} {failure} ({Variant(records[0].variant)}: {records[0].detail or 'no more is known'})"
            for failure, records in seen.items()
        )
        problem = " ".join(f"{key}={value}" for key, value in self._problem.items())
        message = (
            f"{what or f'every variant of {name}'} failed for {problem} on {device_name}, so nothing is run: {said}. "
            "Mend the kernel or its reference, or try again with tune(force=True)"
        )
        failures = tuple((dict(record.variant), record.failure, record.detail) for record in failed)
        return VariantError(message, failures=failures)
