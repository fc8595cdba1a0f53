"""Trying candidates where they can do no harm: in child processes that are replaced when one of them dies.

A candidate's compile and its trial run in a child; what it compiled is in the cache folder they share, so the process
that measures only loads it. Compiles go on beside the measuring where that does not disturb it: on a GPU. On a CPU
device compiler and kernel want the same cores, so they take turns.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import DeviceError
from ..programs.signature import Parameter
from .case import Case
from .child import Begin, CaseAt, Compile, Reply, Try
from .template import Launch
from .trial import FAILURES, Outcome, Run, try_variant

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache

__all__ = ["Prober"]

_log = logging.getLogger("kernelkeep")
_START_SECONDS = 60.0
_FIRST_LAUNCH_SECONDS = 10.0
_REPLIES = msgspec.msgpack.Decoder(Reply)


class Prober:
    """Tries variants of one kernel, several at a time. Close it when done; it is a context manager."""

    def __init__(
        self,
        cache: ProgramCache,
        params: Sequence[Parameter],
        tolerance: float,
        *,
        isolate: bool = True,
        insist: bool = False,
        keep: bool = True,
        workers: int | None = None,
        compile_seconds: float = 300.0,
        trial_seconds: float = 20.0,
    ) -> None:
        self._cache = cache
        self._params = tuple(params)
        self._tolerance = tolerance
        self._keep = keep
        self._isolate = isolate
        self._insist = insist  # where there can be no child, rather try nothing
        self._limits = compile_seconds, trial_seconds
        self._apart = cache.device.info.is_gpu  # compilers and kernels do not share the cores
        self.workers = (workers or max(1, min(8, os.cpu_count() or 1))) if isolate else 1
        self._pool = ThreadPoolExecutor(self.workers, thread_name_prefix="kernelkeep-prober")
        self._children: set[_Child] = set()
        self._idle: list[_Child] = []
        self._turns = _Turns()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._saved: dict[int, tuple[Case, str]] = {}
        self._saving = threading.Lock()
        self._abandoned = 0  # how often
        self._can_start = False  # one was started
        self.closed = False

    def submit(self, launches: Sequence[Launch], cases: Sequence[Case]) -> Future[Outcome]:
        """Try a variant: one launch of the same source for each case."""
        return self._pool.submit(self.attempt, tuple(launches), tuple(cases))

    def quiet(self) -> contextlib.AbstractContextManager[None]:
        """While this is held no candidate runs, and where it would disturb none is compiled either."""
        return self._turns.alone()

    def attempt(self, launches: tuple[Launch, ...], cases: tuple[Case, ...]) -> Outcome:
        """Try a variant, and wait for what comes of it."""
        if self._isolate:
            abandoned = self._abandoned
            try:
                outcome = self._attempt_apart(launches, cases)
                if outcome.failure and (self.closed or self._abandoned > abandoned):
                    return Outcome("passing", "ended before it was done")
                return outcome
            except (_NoChildError, OSError) as error:
                if self.closed or self._abandoned > abandoned:
                    return Outcome("passing", "ended before it began")  # nobody waits for it
                if self._can_start:
                    return Outcome("passing", f"no process could be started for it: {error}")
                if self._insist:
                    raise DeviceError(f"no process can be started to try variants in: {error}") from None
                self._isolate = False
                _log.warning("variants are tried in this process, because none can be started for it: %s", error)
        source, kernel = launches[0].source, launches[0].kernel
        runs = [Run(launch.grid, launch.group, case) for launch, case in zip(launches, cases, strict=True)]
        with self._turns.together():
            return try_variant(self._cache, source, kernel, self._params, runs, self._tolerance)

    def _attempt_apart(self, launches: tuple[Launch, ...], cases: tuple[Case, ...]) -> Outcome:
        source, kernel = launches[0].source, launches[0].kernel
        program = Compile.of(source)
        places = tuple(self._place(launch, case) for launch, case in zip(launches, cases, strict=True))
        request = Try(program, kernel, self._params, places, self._tolerance, self._keep)
        compile_seconds, trial_seconds = self._limits
        if self._cache.device.capabilities.ripening_binaries:
            trial_seconds += _FIRST_LAUNCH_SECONDS  # that driver compiles at the first launch
        with self._child() as child, contextlib.ExitStack() as turn:
            if not self._apart:
                turn.enter_context(self._turns.together())
            outcome = child.ask(program, compile_seconds)
            if outcome.failure:
                return outcome
            if self._apart:
                turn.enter_context(self._turns.together())
            tried = child.ask(request, trial_seconds)
            return msgspec.structs.replace(tried, compile_seconds=outcome.compile_seconds)

    @contextlib.contextmanager
    def _child(self) -> Iterator[_Child]:
        """A child that has nothing to do; a new one where there is none."""
        child = None
        with self._saving:
            while self._idle and child is None:
                child = self._idle.pop()
                if not child.sound:
                    child.close()
                    self._children.discard(child)
                    child = None
        begun = child is not None
        child = child or _Child()
        self._children.add(child)
        if self.closed:
            child.kill()
        try:
            if not begun:
                child.begin(self._cache)
                self._can_start = True
            yield child
        finally:
            if child.sound and not self.closed:
                self._idle.append(child)
            else:
                child.close()
                self._children.discard(child)

    def _place(self, launch: Launch, case: Case) -> CaseAt:
        """Where a child finds the case; written once."""
        with self._saving:
            if self.closed:
                raise _NoChildError("no more are started")
            if id(case) not in self._saved:
                if self._folder is None:
                    self._folder = tempfile.TemporaryDirectory(prefix="kernelkeep-")
                folder = Path(self._folder.name) / f"case{len(self._saved)}"
                case.save(folder)
                self._saved[id(case)] = case, str(folder)
            folder_name = self._saved[id(case)][1]
        scalars = {name: value.item() for name, value in case.scalars.items()}
        return CaseAt(folder_name, case.shapes, scalars, launch.grid, launch.group)

    def abandon(self) -> None:
        """End what is under way: nobody waits for it any longer."""
        self._abandoned += 1
        for child in self._children.difference(self._idle):
            child.kill()

    def close(self) -> None:
        """End the children, also those at work."""
        if self.closed:
            return
        self.closed = True
        for child in list(self._children):
            child.kill()  # whoever waits for one is told that it died
        self._pool.shutdown(wait=True, cancel_futures=True)
        for child in list(self._children):
            child.close()
        with self._saving:
            if self._folder is not None:
                self._folder.cleanup()

    def __enter__(self) -> Prober:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _NoChildError(Exception):
    """There can be no child process here."""


class _Child:
    """One process, asked one thing at a time."""

    def __init__(self) -> None:
        to_child, from_parent = os.pipe()[::-1]
        from_child, to_parent = os.pipe()
        self.sound = True
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
        # The child finds this very package, however it came to be found here.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._to, self._from = Connection(to_child, readable=False), Connection(from_child, writable=False)
        try:
            self._process = self._start(from_parent, to_parent, environment)
        except OSError as error:
            for opened in (self._to, self._from, self._errors):
                opened.close()
            raise _NoChildError(str(error)) from None
        finally:
            os.close(from_parent)
            os.close(to_parent)

    def begin(self, cache: ProgramCache) -> None:
        """Have it open the device; it is good for nothing before."""
        device = cache.device
        begin = Begin(device.spec, str(cache.cache_dir), device.fingerprint.digest, cache.trusted_owner)
        outcome = self.ask(begin, _START_SECONDS)
        if outcome.failure:
            self.sound = False
            raise _NoChildError(f"it {FAILURES[outcome.failure]}: {outcome.detail}")

    def _start(self, incoming: int, outgoing: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kernelkeep.variants.child", str(incoming), str(outgoing), str(os.getpid())],
            pass_fds=(incoming, outgoing),
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent; and a compiler it starts is killed with it
        )

    def ask(self, request: Any, seconds: float) -> Outcome:
        """The outcome; that the process died or did not answer in time is one too."""
        try:
            self._to.send_bytes(msgspec.msgpack.encode(request))
            if not self._from.poll(seconds):
                self.sound = False
                self.kill()
                return Outcome("hung", f"no result after {seconds:g} s")
            outcome = _REPLIES.decode(self._from.recv_bytes()).outcome
        except (EOFError, OSError):
            words = self._last_words()
            code = self._process.poll()
            # Killed by somebody, or ended by an exception: that says nothing about the candidate.
            passing = code is not None and (code > 0 or code == -signal.SIGKILL)
            self.sound = False
            outcome = Outcome("passing" if passing else "crashed", words)
        if outcome.failure == "crashed":
            self.sound = False  # after a fault a driver is not to be trusted, even where the process lives
        return outcome

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        code = self._process.poll()
        how = "the process died"
        if code is not None and code < 0:
            how = f"the process was ended by {_signal_name(-code)}"
        elif code:
            how = f"the process ended with exit code {code}"
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            if lines:
                return f"{how}: {lines[-1][:200]}"
        return how

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.sound = False
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10.0)  # longer only where it is stuck in a driver; it will never run again

    def close(self) -> None:
        """End it, and free what it took here."""
        self.kill()
        for connection in (self._to, self._from):
            with contextlib.suppress(OSError):
                connection.close()
        with contextlib.suppress(OSError):
            self._errors.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Turns:
    """Either any number together, or one alone; who wants to be alone is let in before those who come later."""

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
            finally:  # Ctrl-C comes here as a rule, and the others would wait for ever
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
