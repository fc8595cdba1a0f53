"""What a tuning knows of its variants: what was remembered, what came of each attempt, and who is told."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ..errors import ArgumentError, Unsupported
from .measure import spread
from .record import Record
from .report import Attempt
from .select import fastest
from .space import Variant
from .template import Launch
from .trial import sentence
from .verdicts import still_counts

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache
    from .tuned import Tuned

__all__ = ["Candidate", "Ledger"]


class Candidate(NamedTuple):
    """A variant, its launch for the problem, and the hash of its source."""

    variant: Variant
    launch: Launch
    digest: str


class Ledger:
    """Attempts at one problem on one device. What is to be remembered is written down the moment it is known."""

    def __init__(
        self, tuned: Tuned, cache: ProgramCache, problem: Mapping[str, Any], listen: Callable[[Attempt], None] | None
    ) -> None:
        self.began = time.perf_counter()
        self.attempts: dict[Variant, Attempt] = {}
        self.refused: dict[Attempt, ArgumentError | Unsupported] = {}
        self.step: Callable[[str], None] = lambda text: None
        self._tuned = tuned
        self._device = cache.device
        self._problem = dict(problem)
        self._listen = listen
        self._records = tuned.records(cache)
        self._known = self._records.known(tuned.name, self._device.fingerprint.digest, self._problem, tuned.dtype)
        self._candidates: dict[Variant, Candidate] = {}

    def candidate(self, variant: Variant) -> Candidate:
        """A variant that was `enter`ed."""
        return self._candidates[variant]

    def enter(self, candidate: Candidate) -> Record | None:
        """A new one: what is known of it already, where that needs no new trial."""
        self._candidates[candidate.variant] = candidate
        record = self._known.get(candidate.digest)
        if record is None or not self._counts(record):
            return None
        milliseconds = None if record.failure else record.median_ms
        self.note(candidate, milliseconds, record.failure, record.detail, record.samples_ms, remembered=True)
        return record

    def _counts(self, record: Record) -> bool:
        return still_counts(record, self._tuned.tolerance, self._tuned.reference_digest)

    def refuse(self, variant: Variant, error: ArgumentError | Unsupported) -> None:
        """The device cannot have this variant, such as one with large groups: there is no source to try or remember."""
        attempt = Attempt(variant, None, time.perf_counter() - self.began, "refused", sentence(error))
        self.refused[attempt] = error
        self._tell(attempt)

    def remember(self, candidate: Candidate, samples: list[float], failure: str = "", detail: str = "") -> float | None:
        """Write down what came of a trial, for ever; the median of all samples there are."""
        record = self._tuned.record(
            self._device, self._problem, candidate.variant, candidate.launch.source, samples, failure, detail
        )
        self._records.add(record)
        before = self._known.get(candidate.digest)
        taken = [*(before.samples_ms if before is not None and not before.failure and not failure else []), *samples]
        self._known[candidate.digest] = msgspec.structs.replace(record, samples_ms=taken)
        milliseconds = median(taken) if taken and not failure else None
        self.note(candidate, milliseconds, failure, detail, taken)
        return milliseconds

    def note(
        self,
        candidate: Candidate,
        milliseconds: float | None,
        failure: str,
        detail: str,
        samples: list[float],
        *,
        remembered: bool = False,
    ) -> None:
        """Have an attempt in the report. What may pass is noted and not remembered."""
        now = time.perf_counter() - self.began
        before = self.attempts.get(candidate.variant)
        at_seconds = before.at_seconds if before is not None else now
        remembered = remembered or (before is not None and before.remembered)
        attempt = Attempt(candidate.variant, milliseconds, at_seconds, failure, detail, spread(samples), remembered)
        self.attempts[candidate.variant] = attempt
        if before is None:
            self._tell(attempt)

    def _tell(self, attempt: Attempt) -> None:
        self.step(self._best_so_far())
        if self._listen is not None:
            self._listen(attempt)

    @contextlib.contextmanager
    def marked(self, candidate: Candidate) -> Iterator[None]:
        """Noted beforehand, in case this very process does not survive it; taken back when it does."""
        record = self._tuned.record(self._device, self._problem, candidate.variant, candidate.launch.source, [])
        failed = msgspec.structs.replace(record, failure="crashed", detail="the process that measured it ended")
        self._records.add(msgspec.structs.replace(failed, verified=False))
        try:
            yield
        finally:
            self._records.add(record)

    # --- the best

    def good(self) -> list[Attempt]:
        """Those that were measured, the fastest first."""
        measured = [a for a in self.attempts.values() if a.milliseconds is not None and not a.failure]
        return sorted(measured, key=lambda attempt: attempt.milliseconds or math.inf)

    def best_ms(self) -> float | None:
        """The time of the fastest so far."""
        return next((attempt.milliseconds for attempt in self.good()), None)

    def known(self, variant: Variant) -> Record:
        """What is known of a variant that was measured."""
        return self._known[self._candidates[variant].digest]

    def fastest(self, variants: Iterable[Variant] | None = None) -> Record | None:
        """By all that was ever measured."""
        names = self.attempts if variants is None else variants
        return fastest(self.known(variant) for variant in names if not self.attempts[variant].failure)

    def _best_so_far(self) -> str:
        best = next(iter(self.good()), None)
        return "none right yet" if best is None else f"best {best.milliseconds:.4g} ms, {best.variant}"
