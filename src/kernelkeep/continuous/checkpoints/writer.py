"""Writing checkpoints in the background: a thread that writes the latest state and never stops the run."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import numpy as np

from ...activity import spans
from ...activity.facts import Histogram
from ...errors import CheckpointError
from ..heartbeat import beat
from ..history import CheckpointMoment, Thinned
from .arriving import Arriving
from .checkpoint import Checkpoint, CheckpointWarning, Written
from .claim import CheckpointClaim
from .header import CheckpointHeader

__all__ = ["CheckpointWarning", "CheckpointWriter"]

_BEAT_SECONDS = 0.25
Outcome = Written | CheckpointError | None
OnDone = Callable[[Outcome], object] | None


class CheckpointWriter:
    """Writes the checkpoints of a run in the background, one at a time, to the files that `claim` holds.

    Only the latest state matters: a checkpoint that still waits when a newer one comes is dropped for it. A failure
    is counted, and reported once as a `CheckpointWarning` in the thread that calls `submit`, `flush` or `close` next; after a
    checkpoint that was written again, the next failure is reported again. The thread lives while there is something to
    write, and Python does not end before it is done.

    `written`, `failed` and `replaced` count checkpoints; `seconds` and `nbytes` add up the time and the bytes of the files
    written, `written_bytes` what went to the disk for them; `last` is the last one written, and `problem` the last error, until
    one was written after it. `moments` tells when files were written, in seconds of `time.perf_counter`. `last_iteration` and
    `last_time`, by the monotonic clock, are of the last one, and `times` has how long each took.
    """

    def __init__(self, claim: CheckpointClaim, keep: int = 2) -> None:
        self.path = claim.path
        self.where = claim.shown if claim.at_address else str(claim.path)  # the last state is, in words
        self.keep = keep
        self._claim = claim
        self.written = 0
        self.failed = 0
        self.replaced = 0
        self.seconds = 0.0
        self.nbytes = 0
        self.written_bytes = 0
        self.last: Written | None = None
        self.problem: CheckpointError | None = None
        self.moments: Thinned[CheckpointMoment] = Thinned()
        self.last_iteration: int | None = None
        self.last_time: float | None = None
        self.times = Histogram()
        self._condition = threading.Condition()
        self._waiting: tuple[Checkpoint, OnDone, Any, Arriving | None] | None = None
        self._thread: threading.Thread | None = None
        self._unreported: CheckpointError | None = None
        self._closed = False

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def busy(self) -> bool:
        """Whether something is being written or waits for it."""
        return self._thread is not None

    def submit(
        self,
        header: CheckpointHeader,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        on_done: OnDone = None,
        arriving: Arriving | None = None,
    ) -> None:
        """Write a checkpoint in the background. The arrays belong to the writer until `on_done` is called.

        `arriving` tells of arrays that are still on their way.

        `on_done` gets what was `Written`, the `CheckpointError`, or None where a newer one came first; it is called in the
        writer's thread, or in this one, and what it raises is reported as an uncaught exception of a thread.
        """
        request = Checkpoint(header, arrays), on_done, spans.context(), arriving
        with self._condition:
            if self._closed:
                raise CheckpointError(f"the writer of {self.path} is closed")
            dropped, self._waiting = self._waiting, request
            self.replaced += dropped is not None
            if self._thread is None:
                self._start()
        if dropped is not None and dropped[1] is not None:
            dropped[1](None)
        self._warn()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"checkpoint {self.path.name}")
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or Python is ending; the next one is tried again
            self._waiting = None
            self._note_failure(CheckpointError(f"the checkpoint {self.path} cannot be written: {error}"))
        else:
            self._thread = thread

    def note_failure(self, reason: str) -> None:
        """Count a checkpoint that failed before it could be submitted, and warn of it."""
        with self._condition:
            self._note_failure(CheckpointError(f"the checkpoint {self.path} cannot be written: {reason}"))
        self._warn()

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until everything submitted is written or has failed; False where that takes longer.

        A supervised worker that waits here beats, however long a large state takes on a slow disk.
        """
        done = self._wait(math.inf if timeout_seconds is None else time.monotonic() + timeout_seconds)
        self._warn()
        return done

    def close(self) -> None:
        """Flush, and take no more. Where the checkpoint has an address, wait until it is there, or warn that it is not."""
        with self._condition:
            self._closed = True
        self._wait(math.inf)
        self._warn()
        problem = self._claim.finish_uploads()
        if problem is not None:
            self.where = f"{self.path}, and not at its address"
            warnings.warn(
                f"{problem}; the last state is in {self.path}, and is uploaded when this machine resumes from it",
                CheckpointWarning,
                stacklevel=3,
            )

    def _wait(self, deadline: float) -> bool:
        with self._condition:
            while self._thread is not None and (left := deadline - time.monotonic()) > 0:
                self._condition.wait(min(left, _BEAT_SECONDS))
                beat()
            return self._thread is None

    def _work(self) -> None:
        while True:
            with self._condition:
                request, self._waiting = self._waiting, None
                if request is None:
                    self._thread = None
                    self._condition.notify_all()
                    return
            checkpoint, on_done, parent, arriving = request
            began = time.perf_counter()
            with spans.span(
                "checkpoint.write", parent, program=checkpoint.header.program, iteration=checkpoint.header.iteration
            ) as current:
                outcome = self._write(checkpoint, arriving)
                if isinstance(outcome, Written):
                    current.set(bytes=outcome.nbytes)
                else:
                    current.fail(outcome)
            is_written = isinstance(outcome, Written)
            self.moments.add(CheckpointMoment(began, time.perf_counter(), checkpoint.iteration, is_written))
            if on_done is not None:
                try:
                    on_done(outcome)
                except Exception as error:  # the next checkpoint matters more
                    threading.excepthook(
                        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
                    )

    def _write(self, checkpoint: Checkpoint, arriving: Arriving | None) -> Written | CheckpointError:
        try:
            written = self._claim.write(checkpoint, self.keep, arriving)
        except Exception as error:
            problem = error
            if not isinstance(problem, CheckpointError):
                problem = CheckpointError(f"the checkpoint {self.path} cannot be written: {error}")
                problem.__cause__ = error
            with self._condition:
                self._note_failure(problem)
            return problem
        with self._condition:
            self.written += 1
            self.seconds += written.seconds
            self.nbytes += written.nbytes
            self.written_bytes += written.written_bytes
            self.last = written
            self.last_iteration, self.last_time = checkpoint.header.iteration, time.monotonic()
            self.problem = None
        self.times.add(written.seconds)
        return written

    def _note_failure(self, problem: CheckpointError) -> None:
        self.failed += 1
        if self.problem is None:
            self._unreported = problem
        self.problem = problem

    def _warn(self) -> None:
        with self._condition:
            problem, self._unreported = self._unreported, None
        for one in (problem, self._claim.take_unreported()):
            if one is not None:
                warnings.warn(f"{one}; the run goes on", CheckpointWarning, stacklevel=3)
