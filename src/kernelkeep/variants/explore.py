"""Trying other variants on real calls. No call waits for a trial, and the time lost is bounded.

In the background the next variant is compiled and verified in a worker process; only then may a real call run it instead
of the best one. The *regret* is the time such calls take longer than the best variant would have, plus the verification's
time on the device: it stays below a share of the time of all calls so far.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from statistics import median
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, KernelKeepError, Unsupported
from .call import Results, results
from .definition import source_digest
from .search import Search
from .select import Selection, fastest
from .space import Variant
from .template import Launch
from .trial import too_slow
from .trial_pool import TrialPool

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache
    from .call import Call
    from .case import Case
    from .kernel_records import KernelRecords

_log = logging.getLogger("kernelkeep")
_SAMPLES = 5  # calls that decide about a variant
_MAX_UNREAD = 64  # timers of calls that still run; more calls are not measured


class _Runner:
    """A variant that calls may run."""

    def __init__(self, variant: Variant, launch: Launch, expected_ms: float) -> None:
        self.variant = variant
        self.launch = launch
        self.expected_ms = expected_ms
        self.samples: list[float] = []

    @property
    def milliseconds(self) -> float:
        return median(self.samples) if self.samples else self.expected_ms


class Explorer:
    """The calls of one tuned kernel for one problem on one device."""

    def __init__(self, records: KernelRecords, cache: ProgramCache, call: Call) -> None:
        self.share = 0.0
        self.regret_ms = 0.0
        self.total_ms = 0.0
        self._records = records
        self._definition = records.definition
        self._cache = cache
        self._problem = call.problem
        self._call = call
        self._best = _Runner(call.selection.variant, call.launch, 0.0)
        self._challenger: _Runner | None = None
        self._values = self._definition.template.values(call.problem)
        self._search: Search | None = None
        self._known: set[str] = set()  # digests of sources that have records
        self.pool: TrialPool | None = None
        self._cases: list[Case] = []
        self._unread: list[tuple[_Runner, Any, Any]] = []
        self.busy = False  # a candidate is being verified
        self._exhausted = False
        self._wanted = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._rival_samples: list[float] = []  # of the best one, since there is a challenger

    @property
    def exhausted(self) -> bool:
        """Whether every variant has been tried."""
        return self._exhausted and self._challenger is None

    def run(self, arguments: Mapping[str, Any]) -> Results:
        """One real call."""
        with self._lock:
            self._read_timers()
            runner = self._pick()
            timed = self._is_worth_timing(runner)
            if not timed:
                self.total_ms += self._best.milliseconds
        args, outputs = self._call.arguments(arguments)
        try:
            self._launch(runner, args, timed)
        except KernelKeepError as error:
            if runner is self._best:
                raise
            self._drop(runner, error)
            self._launch(self._best, args, timed=False)
        return results(outputs)

    def _launch(self, runner: _Runner, args: tuple[Any, ...], timed: bool) -> None:
        device, launch = self._cache.device, runner.launch
        with self._cache.get(launch.source) as lease:
            kernel = lease.kernel(launch.kernel)
            if not timed:
                kernel.launch(launch.grid, args, launch.group, shared_bytes=launch.shared_bytes)
                return
            with device.timing_lock:  # another thread's launch in between would be timed too
                timer = device.timer()
                with timer:
                    kernel.launch(launch.grid, args, launch.group, shared_bytes=launch.shared_bytes)
                fence = device.fence()
        with self._lock:
            self._unread.append((runner, timer, fence))

    def _drop(self, runner: _Runner, error: Exception) -> None:
        """Give up a challenger that cannot run; the caller must not notice."""
        _log.warning("%s: %s is not tried any more: %s", self._definition.name, runner.variant, error)
        with self._lock:
            if self._challenger is runner:
                self._challenger = None

    def _is_worth_timing(self, runner: _Runner) -> bool:
        """Whether a call's time is of use. Timing costs: some drivers then wait for the launch."""
        if len(self._unread) >= _MAX_UNREAD:
            return False
        return runner is not self._best or self._challenger is not None or len(runner.samples) < _SAMPLES

    def _read_timers(self) -> None:
        """Read the times of calls that are done."""
        waiting = []
        unread, self._unread = self._unread, []
        for runner, timer, fence in unread:
            if not fence.done:
                waiting.append((runner, timer, fence))
                continue
            milliseconds = timer.seconds * 1e3
            self.total_ms += milliseconds
            if runner is self._best and self._challenger is not None:
                self._rival_samples.append(milliseconds)
            runner.samples.append(milliseconds)
            del runner.samples[:-50]
            if runner is not self._best:
                self.regret_ms += max(0.0, milliseconds - self._best.milliseconds)
        self._unread = waiting
        challenger = self._challenger
        if challenger is not None and min(len(challenger.samples), len(self._rival_samples)) >= _SAMPLES:
            self._challenger = None
            self._settle(challenger)

    def _pick(self) -> _Runner:
        if len(self._best.samples) < _SAMPLES:
            return self._best
        if self._challenger is None:
            self._find_challenger()
            return self._best
        pending = sum(1 for runner, _, _ in self._unread if runner is self._challenger)  # their cost is not known yet
        taken = len(self._challenger.samples) + pending
        if taken > len(self._rival_samples) + len(self._unread) - pending or taken >= 2 * _SAMPLES:
            return self._best  # in turn, so that samples of the same minutes are compared
        more = max(0.0, self._challenger.milliseconds - self._best.milliseconds)
        allowed = self.share * self.total_ms - self.regret_ms
        return self._challenger if more * (1 + pending) <= allowed else self._best

    # --- in the background

    def _find_challenger(self) -> None:
        if self.busy or self._exhausted or self.regret_ms > self.share * self.total_ms:
            return
        self.busy = True
        if self._thread is None:
            # One thread for all: workers end with the thread that started them. A daemon: Python does not wait for it at exit.
            thread = threading.Thread(target=self._try_all, name="kernelkeep-explore", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads can be started; calls continue without exploring
                self._exhausted = True
                return
            self._thread = thread
        self._wanted.release()

    def _try_all(self) -> None:
        while self._wanted.acquire() and not self._exhausted:
            try:
                variant = self._next_new()
                if variant is None:
                    break
                self._try(variant)
            except Exception as error:
                # The cache or the device was closed, no process can be started, or the user's reference fails.
                _log.warning("%s explores no more: %r", self._definition.name, error)
                break  # calls continue with the best known
            finally:
                self.busy = False
        self._exhausted = True
        if self.pool is not None:
            self.pool.close()

    def _next_new(self) -> Variant | None:
        if self._search is None:  # here, because listing a large space takes long, and no call must wait for it
            self._known = {*self._records.by_source(self._problem), source_digest(self._call.launch.source)}
            self._search = Search(self._definition.space, self._values, [])
        variant = self._search.next()
        while variant is not None and not self._is_new(variant):
            variant = self._search.next()
        return variant

    def _is_new(self, variant: Variant) -> bool:
        try:
            launch = self._definition.launch(self._cache.device, self._values, variant)
        except (ArgumentError, Unsupported):
            return False  # the device does not support it
        return source_digest(launch.source) not in self._known

    def _try(self, variant: Variant) -> None:
        definition, device = self._definition, self._cache.device
        if self.pool is None:
            params = definition.template.params(device.language)
            self.pool = TrialPool(self._cache, params, definition.tolerance, require_isolation=True, workers=1)
            self._cases = [definition.case(device, check) for check in definition.problems_to_check(self._problem)]
        launches, cases = definition.trials(device, variant, self._cases)
        began = time.perf_counter()
        outcome = self.pool.attempt(launches, cases)
        if self._exhausted:
            return  # closed meanwhile: that the worker was killed says nothing about the variant
        milliseconds = outcome.seconds * 1e3
        spent = (time.perf_counter() - began) * 1e3 if outcome.failure == "hung" else 2 * len(launches) * milliseconds
        with self._lock:
            self.regret_ms += spent
            best = self._best.milliseconds
        if outcome.failure == "transient":
            return
        if outcome.failure:
            self._store_failure(variant, launches[-1], [], outcome.failure, outcome.detail)
            return
        why = too_slow(milliseconds, best)
        if why:
            self._store_failure(variant, launches[-1], [milliseconds], "slow", why)
            return
        with self._lock:
            self._challenger = _Runner(variant, launches[-1], milliseconds)
            self._rival_samples = []

    def _store_failure(self, variant: Variant, launch: Launch, samples: list[float], failure: str, detail: str) -> None:
        self._records.add(self._records.record(self._problem, variant, launch, samples, failure, detail))

    def close(self) -> None:
        """Stop trying variants."""
        self._exhausted = True
        self._wanted.release()
        if self.pool is not None:
            self.pool.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(10.0)  # it uses the cache, which may be closed next
        self._call.explorer = None  # frees the explorer and its cases
        self._cases = []

    # --- results

    def _settle(self, challenger: _Runner) -> None:
        """Decide between the best one and the challenger, which wins where it is faster by more than a tie."""
        best = self._best
        if self._search is not None:
            self._search.tell(challenger.variant, challenger.milliseconds)
        # Their calls took turns, so the samples are of the same minutes.
        both = [
            self._records.record(self._problem, runner.variant, runner.launch, samples)
            for runner, samples in ((best, self._rival_samples), (challenger, challenger.samples))
        ]
        self._records.add(*both)
        winner = fastest(both, best.variant)
        if winner is None or best.variant == winner.variant:
            reason = f"{best.variant} is the fastest on real calls so far: {best.milliseconds:.4g} ms"
            self._call.choose(Selection(best.variant, reason, best.milliseconds, 0.0, "exact"), best.launch)
            return
        self._best = challenger
        reason = f"faster than {best.variant} on real calls: {challenger.milliseconds:.4g} against {best.milliseconds:.4g} ms"
        self._records.choose(self._problem, challenger.variant, reason)
        selection = Selection(
            challenger.variant, f"{challenger.variant} is {reason}", challenger.milliseconds, 0.0, "exact"
        )
        self._call.choose(selection, challenger.launch)
