"""The end of a tuning: the fastest candidates are measured again side by side, and the winner is verified once more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from ..errors import ArgumentError, CompileError, OutOfMemory, Unsupported
from .measure import Bench, Contender, in_turn
from .record import Record
from .select import fastest, is_tie
from .space import Variant
from .trial import Outcome, sentence

if TYPE_CHECKING:
    from .definition import Problem
    from .kernel_records import KernelRecords
    from .ledger import Candidate, Ledger
    from .trial_pool import TrialPool

FINALISTS = 5
_ROUNDS = 9
_MORE_FINALS = 2
_CLOSE = 1.2  # times the best: those are measured again


@dataclass
class Finals:
    """Decides which of the measured candidates wins. `verify` tries a candidate with other numbers."""

    records: KernelRecords
    problem: Problem
    default: Variant
    ledger: Ledger
    pool: TrialPool
    bench: Bench
    verify: Callable[[Candidate], Outcome]
    _final: dict[Variant, Record] = field(default_factory=dict)  # with the samples that were taken side by side

    def decide(self) -> Variant | None:
        """The winner, which is stored as the choice; None where every candidate failed."""
        decided = self._earlier_choice()
        while True:
            best = self.ledger.fastest()
            if best is None:
                return None
            if decided is not None and all(attempt.remembered for attempt in self.ledger.attempts.values()):
                return decided
            # Only what was measured side by side is compared: the machine may have been faster an hour ago.
            finalists = self._measure_finalists(best)
            fastest_now = self._fastest_of(finalists)
            if fastest_now is None:
                continue  # none of them can be measured any more, and they are out
            best = fastest_now
            for _ in range(_MORE_FINALS):  # the one that looked best was lucky, and now others come close
                if set(self._close_to(best)) <= set(finalists):
                    break
                finalists = self._measure_finalists(best)
                best = self._fastest_of(finalists) or best
            chosen = self._fastest_of(finalists, self._incumbent()) or best
            if self._is_confirmed(chosen):
                self._choose(chosen, best)
                return Variant(chosen.variant)

    def _fastest_of(self, finalists: Iterable[Variant], incumbent: Variant | None = None) -> Record | None:
        return fastest((self._final[variant] for variant in finalists if variant in self._final), incumbent)

    def _earlier_choice(self) -> Variant | None:
        """What an earlier tuning chose, where it was measured and is not a pin."""
        choice = self.records.choice(self.problem)
        if choice is None or choice.pinned:
            return None
        return next((variant for variant in self._measured() if variant.is_same(choice.variant)), None)

    def _measured(self) -> list[Variant]:
        return [attempt.variant for attempt in self.ledger.measured()]

    def _incumbent(self) -> Variant:
        choice = self.records.choice(self.problem)
        held = None if choice is None else choice.variant
        return next((variant for variant in self._measured() if held and variant.is_same(held)), self.default)

    def _measure_finalists(self, best: Record) -> list[Variant]:
        """Measure the incumbent and all that are nearly as fast as the best, in turn."""
        ranked = self._close_to(best)
        incumbent = self._incumbent()
        if incumbent not in ranked and incumbent in self._measured():
            ranked.append(incumbent)
        with self.pool.paused():
            contenders = {variant: found for variant in ranked if (found := self._contender(variant)) is not None}
            taken = in_turn(list(contenders.values()), _ROUNDS)
        for variant, samples in zip(contenders, taken, strict=True):
            self.ledger.store(self.ledger.candidate(variant), samples)
            self._final[variant] = msgspec.structs.replace(self.ledger.known(variant), samples_ms=samples)
        return list(contenders)

    def _contender(self, variant: Variant) -> Contender | None:
        candidate = self.ledger.candidate(variant)
        try:
            return self.bench.contender(variant, candidate.launch)
        except (ArgumentError, CompileError, OutOfMemory, Unsupported) as error:
            self.ledger.fail(candidate, Outcome("transient", sentence(error)))
            return None  # it was measured before, and cannot be measured now

    def _close_to(self, best: Record) -> list[Variant]:
        limit = (best.median_ms or 0.0) * _CLOSE
        close = [attempt.variant for attempt in self.ledger.measured() if (attempt.milliseconds or 0.0) <= limit]
        return close[:FINALISTS]

    def _is_confirmed(self, record: Record) -> bool:
        """Whether the winner is correct for other numbers too; one that is not is out, and another one wins.

        This finds a variant that only looks fast because it skips work, at the size it was measured at.
        """
        variant = Variant(record.variant)
        candidate = self.ledger.candidate(variant)
        outcome = self.verify(candidate)
        if outcome.failure in ("", "transient"):
            return True
        self.ledger.fail(candidate, outcome)
        self.bench.drop(variant)
        return False

    def _choose(self, chosen: Record, best: Record) -> None:
        reason = "the fastest measured"
        if chosen.variant != best.variant and is_tie(chosen, best):
            reason = f"in use before, and a tie with {Variant(best.variant)} ({best.median_ms:.4g} ms)"
        choice = self.records.choice(self.problem)
        if choice is not None and (choice.pinned or (choice.variant == chosen.variant and choice.reason == reason)):
            return
        self.records.choose(self.problem, chosen.variant, reason)
