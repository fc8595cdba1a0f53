"""What a tuning knows of its variants: stored records, the outcome of each attempt, and who is told."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..errors import ArgumentError, Unsupported
from .measure import spread
from .record import Record
from .report import Attempt
from .select import fastest
from .space import Variant
from .template import Launch
from .trial import Outcome, sentence

if TYPE_CHECKING:
    from .definition import Problem
    from .kernel_records import KernelRecords


class Candidate(NamedTuple):
    """A variant, its launch for the problem, and the digest of its source."""

    variant: Variant
    launch: Launch
    digest: str


class Ledger:
    """The attempts at one problem on one device. Each result is stored as soon as it is known."""

    def __init__(self, records: KernelRecords, problem: Problem, listen: Callable[[Attempt], None] | None) -> None:
        self.began = time.perf_counter()
        self.attempts: dict[Variant, Attempt] = {}
        self.refused: dict[Attempt, ArgumentError | Unsupported] = {}
        self.step: Callable[[str], None] = lambda text: None
        self._records = records
        self._problem = dict(problem)
        self._listen = listen
        self._known = records.by_source(self._problem)
        self._candidates: dict[Variant, Candidate] = {}

    def candidate(self, variant: Variant) -> Candidate:
        """A variant that was added."""
        return self._candidates[variant]

    def add(self, candidate: Candidate) -> Record | None:
        """Add a candidate. Returns what is known of it, where that makes a new trial unnecessary."""
        self._candidates[candidate.variant] = candidate
        record = self._known.get(candidate.digest)
        if record is None or not self._records.definition.still_counts(record):
            return None
        milliseconds = None if record.failure else record.median_ms
        self._note(candidate, milliseconds, record.failure, record.detail, record.samples_ms, remembered=True)
        return record

    def refuse(self, variant: Variant, error: ArgumentError | Unsupported) -> None:
        """The device does not support this variant, such as one with large groups: there is no source to try or store."""
        attempt = Attempt(variant, None, time.perf_counter() - self.began, "refused", sentence(error))
        self.refused[attempt] = error
        self._tell(attempt)

    def fail(self, candidate: Candidate, outcome: Outcome, samples: list[float] | None = None) -> None:
        """Store a failure. One that may pass is in the report only."""
        if outcome.failure == "transient":
            self._note(candidate, None, outcome.failure, outcome.detail, [])
        else:
            self.store(candidate, samples or [], outcome.failure, outcome.detail)

    def store(self, candidate: Candidate, samples: list[float], failure: str = "", detail: str = "") -> float | None:
        """Store the result of a trial. Returns the median of all samples there are."""
        record = self._record(candidate, samples, failure, detail)
        self._records.add(record)
        before = self._known.get(candidate.digest)
        taken = [*(before.samples_ms if before is not None and not before.failure and not failure else []), *samples]
        self._known[candidate.digest] = msgspec.structs.replace(record, samples_ms=taken)
        milliseconds = median(taken) if taken and not failure else None
        self._note(candidate, milliseconds, failure, detail, taken)
        return milliseconds

    def _record(self, candidate: Candidate, samples: list[float], failure: str = "", detail: str = "") -> Record:
        return self._records.record(self._problem, candidate.variant, candidate.launch, samples, failure, detail)

    def _note(
        self,
        candidate: Candidate,
        milliseconds: float | None,
        failure: str,
        detail: str,
        samples: list[float],
        *,
        remembered: bool = False,
    ) -> None:
        now = time.perf_counter() - self.began
        before = self.attempts.get(candidate.variant)
        at_seconds = before.at_seconds if before is not None else now
        remembered = remembered or (before is not None and before.remembered)
        attempt = Attempt(candidate.variant, milliseconds, at_seconds, failure, detail, spread(samples), remembered)
        self.attempts[candidate.variant] = attempt
        if before is None:
            self._tell(attempt)

    def _tell(self, attempt: Attempt) -> None:
        best = next(iter(self.measured()), None)
        self.step("none correct yet" if best is None else f"best {best.milliseconds:.4g} ms, {best.variant}")
        if self._listen is not None:
            self._listen(attempt)

    @contextlib.contextmanager
    def marked(self, candidate: Candidate) -> Iterator[None]:
        """Store the candidate as crashed for the length of a block, in case this process does not survive it."""
        self._records.add(self._record(candidate, [], "crashed", "the process that measured it ended"))
        try:
            yield
        finally:
            self._records.add(self._record(candidate, []))

    # --- the best

    def measured(self) -> list[Attempt]:
        """The attempts that have a time, the fastest first."""
        measured = [a for a in self.attempts.values() if a.milliseconds is not None and not a.failure]
        return sorted(measured, key=lambda attempt: attempt.milliseconds or math.inf)

    def best_ms(self) -> float | None:
        """The time of the fastest so far."""
        return next((attempt.milliseconds for attempt in self.measured()), None)

    def known(self, variant: Variant) -> Record:
        """What is known of a variant that was measured."""
        return self._known[self._candidates[variant].digest]

    def fastest(self) -> Record | None:
        """The fastest by all that was ever measured."""
        return fastest(self.known(variant) for variant, attempt in self.attempts.items() if not attempt.failure)
