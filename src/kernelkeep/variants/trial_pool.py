"""Trying candidates in worker processes, which are replaced when a candidate crashes or hangs.

A worker compiles a candidate into the cache folder that all processes share, and runs it; the process that measures only
loads it. On a GPU candidates are compiled during a measurement. On a CPU device the compiler and the kernel need the same
cores, so they take turns.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import DeviceError
from ..programs.signature import Parameter
from .case import Case
from .template import Launch
from .trial import Outcome, TrialLaunch, try_variant
from .worker_messages import Compile, StoredCase, Try
from .worker_process import NoWorkerError, WorkerProcess

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache

_log = logging.getLogger("kernelkeep")
_FIRST_LAUNCH_SECONDS = 10.0


class TrialPool:
    """Tries variants of one kernel, several at a time. A context manager.

    With `isolate`, trials run in worker processes; where none can be started, they run in this process, unless
    `require_isolation` makes that an error.
    """

    def __init__(
        self,
        cache: ProgramCache,
        params: Sequence[Parameter],
        tolerance: float,
        *,
        isolate: bool = True,
        require_isolation: bool = False,
        save_binaries: bool = True,
        workers: int | None = None,
        compile_seconds: float = 300.0,
        trial_seconds: float = 20.0,
    ) -> None:
        self._cache = cache
        self._params = tuple(params)
        self._tolerance = tolerance
        self._save_binaries = save_binaries
        self._isolate = isolate
        self._require_isolation = require_isolation
        self._limits = compile_seconds, trial_seconds
        self._compiles_while_measuring = cache.device.info.is_gpu
        self.workers = (workers or max(1, min(8, os.cpu_count() or 1))) if isolate else 1
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="kernelkeep-trial")
        self._processes: set[WorkerProcess] = set()
        self._idle: list[WorkerProcess] = []
        self._turns = _Turns()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._stored: dict[int, tuple[Case, str]] = {}
        self._lock = threading.Lock()
        self._times_abandoned = 0
        self._has_started_one = False
        self.closed = False

    def submit(self, launches: Sequence[Launch], cases: Sequence[Case]) -> Future[Outcome]:
        """Try a variant: one launch of the same source for each case."""
        return self._threads.submit(self.attempt, tuple(launches), tuple(cases))

    def paused(self) -> contextlib.AbstractContextManager[None]:
        """For the length of a block no candidate runs, and on a CPU device none is compiled."""
        return self._turns.alone()

    def attempt(self, launches: tuple[Launch, ...], cases: tuple[Case, ...]) -> Outcome:
        """Try a variant, and wait for the outcome."""
        if self._isolate:
            before = self._times_abandoned
            try:
                outcome = self._attempt_in_worker(launches, cases)
                if outcome.failure and (self.closed or self._times_abandoned > before):
                    return Outcome("transient", "ended before it was done")
                return outcome
            except (NoWorkerError, OSError) as error:
                if self.closed or self._times_abandoned > before:
                    return Outcome("transient", "ended before it began")  # nobody waits for it
                if self._has_started_one:
                    return Outcome("transient", f"no process could be started for it: {error}")
                if self._require_isolation:
                    raise DeviceError(f"no process can be started to try variants in: {error}") from None
                self._isolate = False
                _log.warning("variants are tried in this process, because none can be started for it: %s", error)
        trials = [
            TrialLaunch(launch.grid, launch.group, case, launch.shared_bytes)
            for launch, case in zip(launches, cases, strict=True)
        ]
        source, kernel = launches[0].source, launches[0].kernel
        with self._turns.together():
            return try_variant(self._cache, source, kernel, self._params, trials, self._tolerance)

    def _attempt_in_worker(self, launches: tuple[Launch, ...], cases: tuple[Case, ...]) -> Outcome:
        program = Compile.of(launches[0].source)
        stored = tuple(self._store(launch, case) for launch, case in zip(launches, cases, strict=True))
        request = Try(program, launches[0].kernel, self._params, stored, self._tolerance, self._save_binaries)
        compile_seconds, trial_seconds = self._limits
        if self._cache.device.capabilities.ripening_binaries:
            trial_seconds += _FIRST_LAUNCH_SECONDS  # this driver compiles at the first launch
        with self._worker() as worker, contextlib.ExitStack() as turn:
            if not self._compiles_while_measuring:
                turn.enter_context(self._turns.together())
            outcome = worker.ask(program, compile_seconds)
            if outcome.failure:
                return outcome
            if self._compiles_while_measuring:
                turn.enter_context(self._turns.together())
            tried = worker.ask(request, trial_seconds)
            return msgspec.structs.replace(tried, compile_seconds=outcome.compile_seconds)

    @contextlib.contextmanager
    def _worker(self) -> Iterator[WorkerProcess]:
        """An idle worker; a new one where there is none."""
        worker = None
        with self._lock:
            while self._idle and worker is None:
                worker = self._idle.pop()
                if not worker.usable:
                    worker.close()
                    self._processes.discard(worker)
                    worker = None
        is_new = worker is None
        worker = worker or WorkerProcess()
        self._processes.add(worker)
        if self.closed:
            worker.kill()
        try:
            if is_new:
                worker.begin(self._cache)
                self._has_started_one = True
            yield worker
        finally:
            if worker.usable and not self.closed:
                self._idle.append(worker)
            else:
                worker.close()
                self._processes.discard(worker)

    def _store(self, launch: Launch, case: Case) -> StoredCase:
        """Write a case where a worker finds it, once."""
        with self._lock:
            if self.closed:
                raise NoWorkerError("no more are started")
            if id(case) not in self._stored:
                if self._folder is None:
                    self._folder = tempfile.TemporaryDirectory(prefix="kernelkeep-")
                folder = Path(self._folder.name) / f"case{len(self._stored)}"
                case.save(folder)
                self._stored[id(case)] = case, str(folder)
            folder_name = self._stored[id(case)][1]
        scalars = {name: value.item() for name, value in case.scalars.items()}
        return StoredCase(folder_name, case.shapes, scalars, launch.grid, launch.group, launch.shared_bytes)

    def abandon(self) -> None:
        """Kill the workers that are running a candidate; nobody waits for the outcomes."""
        self._times_abandoned += 1
        for worker in self._processes.difference(self._idle):
            worker.kill()

    def close(self) -> None:
        """Kill all workers, also those at work."""
        if self.closed:
            return
        self.closed = True
        for worker in list(self._processes):
            worker.kill()  # whoever waits for one gets an outcome
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in list(self._processes):
            worker.close()
        with self._lock:
            if self._folder is not None:
                self._folder.cleanup()

    def __enter__(self) -> TrialPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Turns:
    """Either any number together, or one alone; whoever waits to be alone goes before those who come later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._wanting = 0

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self._inside >= 0 and not self._wanting)
            self._inside += 1
        try:
            yield
        finally:
            self._leave(1)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._wanting += 1
            try:
                self._changed.wait_for(lambda: self._inside == 0)
            finally:  # Ctrl-C usually arrives here, and the others would wait forever
                self._wanting -= 1
                self._changed.notify_all()
            self._inside = -1
        try:
            yield
        finally:
            self._leave(-1)

    def _leave(self, part: int) -> None:
        with self._changed:
            self._inside -= part
            self._changed.notify_all()
