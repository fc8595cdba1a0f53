"""Which variants are known to fail. Such a variant is not run; where all of them failed, that is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import VariantError
from .record import Record
from .space import Variant
from .values import in_words

_OF_THE_PROGRAM = ("wrong", "guard")  # a program that computes something wrong is suspect at every size
_RIGHT = ("", "slow")  # a slow variant was verified, and only given up


def why_failed(record: Record) -> str:
    """A failure's class and its sentence."""
    return f"{record.failure}: {record.detail}" if record.detail else record.failure


class KnownFailures:
    """The failures of a tuned kernel's variants on one device, seen from one problem.

    `digest_of(variant)` is the digest of a variant's source for this problem as the template writes it today, or None
    where the device does not support it. A record of another source does not count.
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
        self._elsewhere: dict[str, Record] = {}  # failures for other problems, by the source
        for record in records:
            if record.problem == problem:
                self._here.setdefault(Variant(record.variant), []).append(record)
            elif record.failure in _OF_THE_PROGRAM and counts(record):
                self._elsewhere[record.source] = record
        self._counts = counts

    def failure_of(self, variant: Variant) -> Record | None:
        """How a variant failed for this problem; where it was never tried for it, how its program failed for another."""
        here = self._here.get(variant)
        if here is None and not self._elsewhere:
            return None
        digest = self._digest_of(variant)
        tried = next((record for record in here or () if record.source == digest), None)
        if tried is not None:
            return None if tried.failure in _RIGHT or not self._counts(tried) else tried
        return None if digest is None else self._elsewhere.get(digest)

    def is_for_this_problem(self, failure: Record | None) -> bool:
        """Whether what `failure_of` found is about this very problem."""
        return failure is not None and failure.problem == self._problem

    def outdated_failure_of(self, variant: Variant) -> Record | None:
        """A failure for this problem that does not count any more."""
        failed = (record for record in self._here.get(variant, ()) if record.failure not in _RIGHT)
        return next((record for record in failed if not self._counts(record)), None)

    def error(self, name: str, device_name: str, what: str = "") -> VariantError:
        """The error for when every variant failed, or the one that must run, which `what` names. It has an example of each
        class of failure."""
        failed = [
            record
            for variant in self._here
            if (record := self.failure_of(variant)) is not None and self.is_for_this_problem(record)
        ]
        by_class: dict[str, list[Record]] = {}
        for record in failed:
            by_class.setdefault(record.failure, []).append(record)
        examples = "; ".join(
            f"{len(records)} {failure} ({Variant(records[0].variant)}: {records[0].detail or 'no more is known'})"
            for failure, records in by_class.items()
        )
        message = (
            f"{what or f'every variant of {name}'} failed for {in_words(self._problem)} on {device_name}, so nothing is "
            f"run: {examples}. Correct the kernel or its reference, or try again with tune(force=True)"
        )
        failures = tuple((dict(record.variant), record.failure, record.detail) for record in failed)
        return VariantError(message, failures=failures)
