"""Finding the fastest variant: try, verify, measure, remember, and look around the best ones, until time is up.

Every attempt is remembered the moment it is made, so a tuning that is interrupted goes on where it stopped, and one that
was finished costs next to nothing the second time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING, Any

import msgspec

from ..cache.program_cache import ProgramCache
from ..cache.progress import progress_bar
from ..errors import ArgumentError, CompileError, OutOfMemory, Unsupported, VariantError
from .case import Case
from .ledger import Candidate, Ledger
from .measure import Arena, Contender, in_turn
from .prober import Prober
from .record import Choice, Record
from .report import Attempt, TuneReport
from .search import Search
from .select import fastest, is_tie
from .space import Variant
from .trial import FAR_TOO_SLOW, LEAST_SLOW_MS, Outcome, sentence

if TYPE_CHECKING:
    from .tuned import Tuned

__all__ = ["Tuning"]

_QUICK_ROUNDS = 3
_FINAL_ROUNDS = 9
_FINALISTS = 5
_MORE_FINALS = 2
_CLOSE = 1.2  # times the best: those are measured again, in turn
_UNHURRIED = 300  # variants; a space that small is tried whole where no time was set
_DEFAULT_SECONDS = 60.0


class Tuning:
    """One tuning of one kernel for one problem on one device."""

    def __init__(
        self,
        tuned: Tuned,
        cache: ProgramCache,
        problem: Mapping[str, Any],
        *,
        budget_seconds: float | None,
        progress: bool,
        listen: Callable[[Attempt], None] | None,
        isolate: bool,
        workers: int | None,
        trial_seconds: float,
    ) -> None:
        self._tuned = tuned
        self._cache = cache
        self._device = cache.device
        self._problem = problem
        self._progress = progress
        self._ledger = Ledger(tuned, cache, problem, listen)
        self._values = tuned.template.values(problem)
        self._params = tuned.template.params(self._device.language)
        self._default = tuned.space.default(self._values)
        self._search = Search(tuned.space, self._values, self._to_begin_with())
        if budget_seconds is None and (self._search.size or math.inf) > _UNHURRIED:
            budget_seconds = _DEFAULT_SECONDS
        self._until = math.inf if budget_seconds is None else self._ledger.began + budget_seconds
        self._contenders: dict[Variant, Contender] = {}
        self._final: dict[Variant, Record] = {}
        self._cases: dict[int, list[Case]] = {}
        self._arena: Arena | None = None
        # Where a binary is complete only after a launch, to ask for it takes longer than to compile (PoCL), and nobody needs
        # those of the losers: candidates then go through a cache that saves nothing, and the winner is saved at the end.
        self._saves_all = not cache.device.capabilities.ripening_binaries
        self._programs = cache
        if not self._saves_all:
            self._programs = ProgramCache(
                cache.device, cache.cache_dir, auto_save=False, trusted_owner=cache.trusted_owner
            )
        self._prober = Prober(
            self._programs,
            self._params,
            tuned.tolerance,
            isolate=isolate,
            keep=self._saves_all,
            workers=workers,
            trial_seconds=trial_seconds,
        )

    def _to_begin_with(self) -> list[Variant]:
        """The default, and what would be chosen now: a short tuning is then never worse than none."""
        try:
            chosen = self._tuned.select(self._cache, self._problem).variant
        except VariantError:
            return [self._default]  # all failed so far
        return [chosen, self._default]

    def run(self) -> TuneReport:
        """Tune, and choose."""
        try:
            with (
                self._prober,
                progress_bar(f"tuning {self._tuned.name}", self._search.size, self._progress) as step,
            ):
                self._ledger.step = step
                self._try_in_time()
                if self._ledger.refused and not self._ledger.attempts:
                    raise next(iter(self._ledger.refused.values()))  # not one can be made: the template is wrong
                best = self._decide()
                if best is not None and not self._saves_all and not self._ledger.attempts[best].remembered:
                    self._save(best)
            return self._report(best)
        finally:
            self._tuned.forget(self._cache)  # also where it was interrupted
            for contender in self._contenders.values():
                contender.close()
            if self._arena is not None:
                self._arena.close()
            if self._programs is not self._cache:
                self._programs.close()

    # --- one after the other

    def _try_in_time(self) -> None:
        if self._until == math.inf:
            self._try_all()
            return
        # Measuring waits for candidates under way, and one that does not end must not keep it past the time.
        end = threading.Timer(max(0.0, self._time_left()), self._prober.abandon)
        end.start()
        try:
            self._try_all()
        finally:
            end.cancel()
            end.join()

    def _try_all(self) -> None:
        under_way: dict[Future[Outcome], Candidate] = {}
        while True:
            while len(under_way) < 2 * self._prober.workers and self._time_left() > 0:
                candidate = self._next_unknown()
                if candidate is None:
                    break
                under_way[self._submit(candidate)] = candidate
            if not under_way:
                return
            timeout = None if self._until == math.inf else max(0.0, self._time_left())
            done, _ = wait(under_way, timeout, FIRST_COMPLETED)
            if not done:
                for future in under_way:
                    future.cancel()  # time is up; what is under way is not known yet, and is tried the next time
                self._prober.abandon()
                return
            # The quick ones first: they tell which of the others are far too slow to be measured.
            for future in sorted(done, key=lambda future: future.result().seconds):
                candidate, outcome = under_way.pop(future), future.result()
                if outcome.failure not in ("crashed", "hung", "passing") or self._time_left() > 0:
                    self._judge(candidate, outcome)  # else it was ended because time is up

    def _time_left(self) -> float:
        return self._until - time.perf_counter()

    def _next_unknown(self) -> Candidate | None:
        """The next variant that was never tried; those that were are remembered on the way."""
        while True:
            variant = self._search.next()
            if variant is None:
                return None
            try:
                launch = self._tuned.template.launch(self._tuned.name, self._device, self._values, variant)
            except (ArgumentError, Unsupported) as error:
                self._ledger.refuse(variant, error)
                continue
            candidate = Candidate(variant, launch, self._tuned.digest(launch.source))
            record = self._ledger.enter(candidate)
            if record is None:
                return candidate
            self._search.tell(variant, None if record.failure else record.median_ms)

    def _submit(self, candidate: Candidate, seed: int = 0) -> Future[Outcome]:
        return self._prober.submit(*self._tuned.trials(self._device, candidate.variant, self._cases_for(seed)))

    def _cases_for(self, seed: int) -> list[Case]:
        """The problems a variant is verified on, this one last; other numbers for another seed."""
        if seed not in self._cases:
            checks = self._tuned.checks(self._problem)
            self._cases[seed] = [
                self._tuned.case(self._device, check, seed, measured=not seed and check is checks[-1])
                for check in checks
            ]
        return self._cases[seed]

    def _judge(self, candidate: Candidate, outcome: Outcome) -> None:
        """Measure what was found right, and remember it either way."""
        if outcome.failure == "passing":
            self._ledger.note(candidate, None, outcome.failure, outcome.detail, [])
            return
        if outcome.failure:
            self._ledger.remember(candidate, [], outcome.failure, outcome.detail)
            return
        best, once = self._ledger.best_ms(), outcome.seconds * 1e3
        if best is not None and once > max(FAR_TOO_SLOW * best, LEAST_SLOW_MS):
            self._ledger.remember(candidate, [once], "slow", f"{once:.4g} ms, and the best takes {best:.4g} ms")
            return
        try:
            with self._prober.quiet(), self._ledger.marked(candidate):
                samples = in_turn([self._contender(candidate.variant)], _QUICK_ROUNDS)[0]
        except OutOfMemory as error:
            self._drop(candidate.variant)
            self._ledger.note(candidate, None, "passing", sentence(error), [])
            return
        except (ArgumentError, CompileError, Unsupported) as error:
            self._drop(candidate.variant)
            self._ledger.remember(candidate, [], "refused", sentence(error))
            return
        self._search.tell(candidate.variant, self._ledger.remember(candidate, samples))
        self._drop_the_hopeless()

    def _arena_of_problem(self) -> Arena:
        if self._arena is None:
            self._arena = Arena(self._programs, self._params, self._cases_for(0)[-1])
        return self._arena

    def _drop_the_hopeless(self) -> None:
        ranked = [attempt.variant for attempt in self._ledger.good() if attempt.variant in self._contenders]
        for variant in ranked[_FINALISTS:]:
            self._drop(variant)

    def _drop(self, variant: Variant) -> None:
        contender = self._contenders.pop(variant, None)
        if contender is not None:
            contender.close()

    # --- deciding

    def _decide(self) -> Variant | None:
        """The winner: measured again beside those that come close, then verified with other numbers."""
        decided = self._decided()
        while True:
            best = self._ledger.fastest()
            if best is None:
                return None
            if decided is not None and all(attempt.remembered for attempt in self._ledger.attempts.values()):
                return decided
            # Only what was measured side by side is compared: the machine may have been quicker an hour ago.
            finalists = self._measure_finalists(best)
            fastest_now = self._fastest_now(finalists)
            if fastest_now is None:
                continue  # none of them can be measured any more, and they are out
            best = fastest_now
            for _ in range(_MORE_FINALS):  # the one that looked best was lucky, and now others come close
                if set(self._close_to(best)) <= set(finalists):
                    break
                finalists = self._measure_finalists(best)
                best = self._fastest_now(finalists) or best
            chosen = self._fastest_now(finalists, self._incumbent()) or best
            if self._is_confirmed(chosen):
                self._choose(chosen, best)
                return Variant(chosen.variant)

    def _fastest_now(self, finalists: Iterable[Variant], incumbent: Variant | None = None) -> Record | None:
        """By the samples that were just taken side by side."""
        return fastest((self._final[variant] for variant in finalists if variant in self._final), incumbent)

    def _choice(self) -> Choice | None:
        tuned, fingerprint = self._tuned, self._device.fingerprint.digest
        return tuned.records(self._cache).choice(tuned.name, fingerprint, self._problem, tuned.dtype)

    def _decided(self) -> Variant | None:
        """What an earlier tuning chose, where that is still right."""
        choice = self._choice()
        if choice is None or choice.pinned:
            return None
        return next((variant for variant in self._measured() if variant.is_same(choice.variant)), None)

    def _measured(self) -> list[Variant]:
        return [attempt.variant for attempt in self._ledger.good()]

    def _incumbent(self) -> Variant:
        choice = self._choice()
        held = None if choice is None else choice.variant
        return next((variant for variant in self._measured() if held and variant.is_same(held)), self._default)

    def _measure_finalists(self, best: Record) -> list[Variant]:
        """The incumbent and all that are nearly as fast as the best, in turn."""
        ranked = self._close_to(best)
        incumbent = self._incumbent()
        if incumbent not in ranked and incumbent in self._measured():
            ranked.append(incumbent)
        with self._prober.quiet():
            contenders = {
                variant: found for variant in ranked if (found := self._contender_or_out(variant)) is not None
            }
            taken = in_turn(list(contenders.values()), _FINAL_ROUNDS)
        for variant, samples in zip(contenders, taken, strict=True):
            self._ledger.remember(self._ledger.candidate(variant), samples)
            self._final[variant] = msgspec.structs.replace(self._ledger.known(variant), samples_ms=samples)
        return list(contenders)

    def _contender_or_out(self, variant: Variant) -> Contender | None:
        try:
            return self._contender(variant)
        except (ArgumentError, CompileError, OutOfMemory, Unsupported) as error:
            self._ledger.note(self._ledger.candidate(variant), None, "passing", sentence(error), [])
            return None  # what was known of it is of no use now

    def _close_to(self, best: Record) -> list[Variant]:
        limit = (best.median_ms or 0.0) * _CLOSE
        close = [attempt.variant for attempt in self._ledger.good() if (attempt.milliseconds or 0.0) <= limit]
        return close[:_FINALISTS]

    def _contender(self, variant: Variant) -> Contender:
        if variant not in self._contenders:
            self._contenders[variant] = Contender(self._arena_of_problem(), self._ledger.candidate(variant).launch)
        return self._contenders[variant]

    def _is_confirmed(self, record: Record) -> bool:
        """Whether the winner is right for other numbers too. One that is not is out, and another one wins.

        A variant that only looks fast because it skips work is found out here, at the size it was measured at.
        """
        variant = Variant(record.variant)
        candidate = self._ledger.candidate(variant)
        outcome = self._submit(candidate, seed=1).result()
        if not outcome.failure or outcome.failure == "passing":
            return True  # what may pass says nothing against it
        self._ledger.remember(candidate, [], outcome.failure, outcome.detail)
        self._drop(variant)
        return False

    def _choose(self, chosen: Record, best: Record) -> None:
        reason = "the fastest measured"
        if chosen.variant != best.variant and is_tie(chosen, best):
            reason = f"in use before, and a tie with {Variant(best.variant)} ({best.median_ms:.4g} ms)"
        choice = self._choice()
        if choice is not None and (choice.pinned or (choice.variant == chosen.variant and choice.reason == reason)):
            return
        self._tuned.decide(self._cache, self._problem, chosen.variant, reason)

    def _save(self, best: Variant) -> None:
        """Have the winner in the user's cache, complete: used once, and let go."""
        arena = Arena(self._cache, self._params, self._cases_for(0)[-1], most_sets=1)
        try:
            Contender(arena, self._ledger.candidate(best).launch).close()
        finally:
            arena.close()

    def _report(self, best: Variant | None) -> TuneReport:
        self._tuned.forget(self._cache)
        attempts = self._ledger.attempts
        attempt = attempts.get(best) if best is not None else None
        default = attempts.get(self._default)
        reason = ""
        if best is not None:
            try:
                reason = self._tuned.select(self._cache, self._problem).reason
            except VariantError as error:
                reason = str(error)  # what is pinned failed
        return TuneReport(
            self._tuned.name,
            self._device.info.name,
            dict(self._problem),
            best,
            attempt.milliseconds if attempt is not None else None,
            self._default,
            default.milliseconds if default is not None else None,
            (*attempts.values(), *self._ledger.refused),
            self._search.size,
            time.perf_counter() - self._ledger.began,
            reason,
        )
