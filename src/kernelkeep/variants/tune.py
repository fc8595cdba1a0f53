"""Finding the fastest variant: try, verify, measure, store, and look around the best ones, until time is up.

Every attempt is stored as soon as it is made, so an interrupted tuning continues where it stopped, and a finished one
takes next to no time when it is repeated.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TYPE_CHECKING

from ..activity import live
from ..activity.spans import span
from ..cache.program_cache import ProgramCache
from ..errors import ArgumentError, CompileError, OutOfMemory, Unsupported, VariantError
from ..progress.reporter import Wanted, reported
from .case import Case
from .chooser import Chooser
from .definition import source_digest
from .finals import FINALISTS, Finals
from .ledger import Candidate, Ledger
from .measure import Bench, in_turn
from .report import Attempt, TuneReport
from .search import Search
from .select import Selection
from .space import Variant
from .trial import Outcome, failed, too_slow
from .trial_pool import TrialPool

if TYPE_CHECKING:
    from .definition import Problem
    from .kernel_records import KernelRecords

_QUICK_ROUNDS = 3
_SMALL_SPACE = 300  # variants; a space of that size is tried whole where no budget was given
_DEFAULT_SECONDS = 60.0


class Tuning:
    """One tuning of one kernel for one problem on one device."""

    def __init__(
        self,
        records: KernelRecords,
        cache: ProgramCache,
        problem: Problem,
        *,
        budget_seconds: float | None,
        progress: Wanted,
        listen: Callable[[Attempt], None] | None,
        isolate: bool,
        workers: int | None,
        trial_seconds: float,
    ) -> None:
        self._definition = records.definition
        self._records = records
        self._cache = cache
        self._device = cache.device
        self._problem = problem
        self._progress = progress
        self._ledger = Ledger(records, problem, listen)
        template = self._definition.template
        self._values = template.values(problem)
        self._params = template.params(self._device.language)
        self._default = self._definition.default(self._device, self._values)
        self._search = Search(self._definition.space, self._values, self._first_variants())
        if budget_seconds is None and (self._search.size or math.inf) > _SMALL_SPACE:
            budget_seconds = _DEFAULT_SECONDS
        self._budget = budget_seconds
        self._deadline = math.inf if budget_seconds is None else self._ledger.began + budget_seconds
        self._cases: dict[int, list[Case]] = {}
        # Where a binary is complete only after a launch, reading it back takes longer than compiling (PoCL), and
        # those of the losers are not needed: candidates use a cache that saves nothing, and the winner is saved at the end.
        self._saves_all = not cache.device.capabilities.ripening_binaries
        self._programs = cache
        if not self._saves_all:
            self._programs = ProgramCache(
                cache.device, cache.cache_dir, remote=[], auto_save=False, trusted_owner=cache.trusted_owner
            )
        self._pool = TrialPool(
            self._programs,
            self._params,
            self._definition.tolerance,
            isolate=isolate,
            save_binaries=self._saves_all,
            workers=workers,
            trial_seconds=trial_seconds,
        )
        self._bench = Bench(self._programs, self._params, self._measured_case)

    def _first_variants(self) -> list[Variant]:
        """The default, and what would be chosen now: a short tuning is then never worse than none."""
        try:
            return [self._select().variant, self._default]
        except VariantError:
            return [self._default]  # all failed so far

    def _select(self) -> Selection:
        return Chooser(self._records, self._problem).choose(self._definition.deterministic)

    def run(self) -> TuneReport:
        """Tune, and choose."""
        try:
            with (
                span("tune", kernel=self._definition.name, device=self._device.spec) as current,
                self._pool,
                live.work("tuning", self._definition.name, self._device.spec, self._search.size) as shown,
                reported(
                    f"tuning {self._definition.name}",
                    self._search.size,
                    self._progress,
                    unit="variants",
                    limit_seconds=self._budget,
                ) as report,
            ):

                def tell(text: str) -> None:
                    shown.step(text)
                    report.step(text)

                self._ledger.step = tell
                self._try_until_deadline()
                if self._ledger.refused and not self._ledger.attempts:
                    raise next(iter(self._ledger.refused.values()))  # no variant can be made: the template is wrong
                best = self._finals().decide()
                if best is not None and not self._saves_all and not self._ledger.attempts[best].remembered:
                    self._save(best)
                current.set(attempts=len(self._ledger.attempts), best=str(best))
            return self._report(best)
        finally:
            self._bench.close()
            if self._programs is not self._cache:
                self._programs.close()

    def _finals(self) -> Finals:
        def verify(candidate: Candidate) -> Outcome:
            return self._submit(candidate, seed=1).result()

        return Finals(self._records, self._problem, self._default, self._ledger, self._pool, self._bench, verify)

    # --- trials

    def _try_until_deadline(self) -> None:
        if self._deadline == math.inf:
            self._try_all()
            return
        # Measuring waits for running candidates, and one that does not end must not delay it past the deadline.
        timer = threading.Timer(max(0.0, self._time_left()), self._pool.abandon)
        timer.start()
        try:
            self._try_all()
        finally:
            timer.cancel()
            timer.join()

    def _try_all(self) -> None:
        running: dict[Future[Outcome], Candidate] = {}
        while True:
            while len(running) < 2 * self._pool.workers and self._time_left() > 0:
                candidate = self._next_unknown()
                if candidate is None:
                    break
                running[self._submit(candidate)] = candidate
            if not running:
                return
            timeout = None if self._deadline == math.inf else max(0.0, self._time_left())
            done, _ = wait(running, timeout, FIRST_COMPLETED)
            if not done:
                for future in running:
                    future.cancel()  # time is up; these are tried the next time
                self._pool.abandon()
                return
            # The fastest first: they tell which of the others are too slow to be measured.
            for future in sorted(done, key=lambda future: future.result().seconds):
                candidate, outcome = running.pop(future), future.result()
                if outcome.failure not in ("crashed", "hung", "transient") or self._time_left() > 0:
                    self._take(candidate, outcome)  # else it was ended because time is up

    def _time_left(self) -> float:
        return self._deadline - time.perf_counter()

    def _next_unknown(self) -> Candidate | None:
        """The next variant that was never tried; the results of those that were are taken from the records."""
        while True:
            variant = self._search.next()
            if variant is None:
                return None
            try:
                launch = self._definition.launch(self._device, self._values, variant)
            except (ArgumentError, Unsupported) as error:
                self._ledger.refuse(variant, error)
                continue
            candidate = Candidate(variant, launch, source_digest(launch.source))
            record = self._ledger.add(candidate)
            if record is None:
                return candidate
            self._search.tell(variant, None if record.failure else record.median_ms)

    def _submit(self, candidate: Candidate, seed: int = 0) -> Future[Outcome]:
        return self._pool.submit(*self._definition.trials(self._device, candidate.variant, self._cases_for(seed)))

    def _cases_for(self, seed: int) -> list[Case]:
        """The problems a variant is verified on, this one last; other numbers for another seed."""
        if seed not in self._cases:
            checks = self._definition.problems_to_check(self._problem)
            self._cases[seed] = [
                self._definition.case(self._device, check, seed, measured=not seed and check is checks[-1])
                for check in checks
            ]
        return self._cases[seed]

    def _measured_case(self) -> Case:
        return self._cases_for(0)[-1]

    def _take(self, candidate: Candidate, outcome: Outcome) -> None:
        """Store a failure; measure a candidate that was verified, and store that."""
        once = outcome.seconds * 1e3
        if outcome.failure:
            self._ledger.fail(candidate, outcome)
            return
        why = too_slow(once, self._ledger.best_ms())
        if why:
            self._ledger.fail(candidate, Outcome("slow", why), [once])
            return
        try:
            with self._pool.paused(), self._ledger.marked(candidate):
                samples = in_turn([self._bench.contender(candidate.variant, candidate.launch)], _QUICK_ROUNDS)[0]
        except (ArgumentError, CompileError, OutOfMemory, Unsupported) as error:
            self._bench.drop(candidate.variant)
            self._ledger.fail(candidate, failed(error, otherwise="refused"))
            return
        self._search.tell(candidate.variant, self._ledger.store(candidate, samples))
        self._bench.keep([attempt.variant for attempt in self._ledger.measured()], FINALISTS)

    # --- the end

    def _save(self, best: Variant) -> None:
        """Have the winner's complete binary in the user's cache: it is launched once."""
        bench = Bench(self._cache, self._params, self._measured_case, max_sets=1)
        try:
            bench.contender(best, self._ledger.candidate(best).launch)
        finally:
            bench.close()

    def _report(self, best: Variant | None) -> TuneReport:
        attempts = self._ledger.attempts
        attempt = attempts.get(best) if best is not None else None
        default = attempts.get(self._default)
        reason = ""
        if best is not None:
            try:
                reason = self._select().reason
            except VariantError as error:
                reason = str(error)  # the pinned variant failed
        return TuneReport(
            self._definition.name,
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
