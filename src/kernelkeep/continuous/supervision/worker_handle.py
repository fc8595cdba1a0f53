"""A worker process as its supervisor sees it: started, watched, asked to stop, killed, and described."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import pickle
import time
from collections.abc import Callable
from typing import Any

from ...errors import ArgumentError
from ...platforms import system
from ..heartbeat import RECORD, pause_of
from .incident import Incident, describe_exit
from .worker_main import Failed, Message, Started, worker_main

_log = logging.getLogger("kernelkeep")
_TICK_SECONDS = 0.25
_STOP_SECONDS = 30.0  # for a worker that was asked to stop, to make its checkpoint
_END_SECONDS = 10.0  # for a worker that reported its end, to exit
_STALL_SECONDS = 1.0


class WorkerHandle:
    """Starts a worker process, and keeps what was heard from it."""

    def __init__(
        self,
        target: Callable[..., Any],
        arguments: tuple[Any, ...],
        heartbeat_seconds: float,
        start_seconds: float,
        replaces: tuple[str, str | None] | None = None,
    ) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit threads' locks, and no driver survives it
        self._channel, channel = context.Pipe(duplex=False)
        self._pulse, pulse = context.Pipe(duplex=False)
        self._open = {self._channel, self._pulse}
        self._heartbeat_seconds = heartbeat_seconds
        self._start_seconds = start_seconds
        self._process = context.Process(
            target=worker_main,
            args=(target, arguments, channel, pulse, heartbeat_seconds, os.getpid(), replaces),
            name="kernelkeep worker",
        )
        self._when = time.time()
        self._began = self._alive = time.monotonic()
        self._beat: float | None = None
        self._iteration: int | None = None
        self._started = False
        self._ended: float | None = None
        self._hung = False
        try:
            self._process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self._close()
            raise ArgumentError(f"the target or its arguments cannot be sent to another process: {error}") from error
        except BaseException:
            self._close()
            raise
        finally:
            # The worker has its own; the ends here would keep the pipes open after its death.
            channel.close()
            pulse.close()
        self._read_pulse = system.pipe_reader(self._pulse)

    @property
    def never_started(self) -> bool:
        """Whether it ended by itself before the target was called: another worker would, too."""
        code = self._process.exitcode
        return not self._started and not self._hung and code is not None and code > 0

    def watch(self) -> Message | None:
        """Wait for its end; returns its last message, or None where it died or hangs without one."""
        while True:
            before = time.monotonic()
            multiprocessing.connection.wait([*self._open, self._process.sentinel], _TICK_SECONDS)
            dead = self._process.exitcode is not None
            self._hear()
            message = self._read()
            if message is not None:
                self._ended = time.monotonic()
                return message
            if dead:
                self._ended = time.monotonic()
                return None
            now = time.monotonic()
            if now - before > _TICK_SECONDS + _STALL_SECONDS:
                self._alive = now  # this process was stopped, and perhaps the worker with it
            if now - self._alive > self._patience_seconds:
                self._hung = True
                self._ended = now
                return None

    @property
    def _patience_seconds(self) -> float:
        """How long it may be silent: its last beat may be one that it did not send."""
        if self._beat is None:
            return self._start_seconds
        return self._heartbeat_seconds + pause_of(self._heartbeat_seconds)

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := self._read_pulse(RECORD.size * 256):
                self._beat, iteration = RECORD.unpack(data[-RECORD.size :])
                self._alive = max(self._alive, self._beat)
                self._iteration = None if iteration < 0 else iteration
            self._open.discard(self._pulse)  # at its end it would be ready for ever

    def _read(self) -> Message | None:
        try:
            while self._channel.poll():
                message: Message = self._channel.recv()
                if not isinstance(message, Started):
                    return message
                self._started = True
        except (EOFError, OSError):
            self._open.discard(self._channel)
        return None

    def stop(self) -> None:
        """Ask it to stop and give it time to make its checkpoint; another Ctrl-C meanwhile ends that."""
        _log.warning("worker %d is asked to stop", self._process.pid)
        deadline = time.monotonic() + _STOP_SECONDS
        with contextlib.suppress(KeyboardInterrupt, OSError):
            system.interrupt(self._process.pid or 0)
            while self._process.exitcode is None and time.monotonic() < deadline:
                self._read()  # its message may be larger than the pipe
                self._process.join(0.02)

    def kill(self) -> None:
        """Make sure that it has ended, and close its pipes."""
        process = self._process
        if not self._hung and self._ended is not None:
            process.join(_END_SECONDS)  # it reported its end; a driver may still hang while the process exits
        if process.exitcode is None:
            if self._started and process.pid:  # it leads a process group, with all that it started, such as a compiler
                with contextlib.suppress(OSError):
                    system.kill_group(process.pid)
            process.kill()
            process.join(
                _END_SECONDS
            )  # it takes longer only where it is stuck in a driver, and then it never runs again
        self._close()

    def _close(self) -> None:
        self._channel.close()
        self._pulse.close()

    def incident(self, ended: Message | None, checkpoint: str) -> Incident:
        """What happened to it."""
        end = self._ended if self._ended is not None else time.monotonic()
        code, name, trace, iteration = None, None, "", self._iteration
        if isinstance(ended, Failed):
            what, trace = f"failed with {ended.name}: {ended.message}", ended.traceback
            iteration = ended.iteration if ended.iteration is not None else iteration
            code = self._process.exitcode
        elif self._hung:
            limit = self._start_seconds if self._beat is None else self._heartbeat_seconds
            what = f"hung (no heartbeat for {limit:g} s) and was killed"
            name = "SIGKILL"
        else:
            what, code, name = describe_exit(self._process.exitcode or 0)
        return Incident(
            when=self._when + end - self._began,
            what=what,
            pid=self._process.pid or 0,
            seconds=end - self._began,
            exit_code=code,
            signal=name,
            last_iteration=iteration,
            heartbeat_age_seconds=None if self._beat is None else max(0.0, end - self._beat),
            checkpoint=checkpoint,
            traceback=trace,
        )
