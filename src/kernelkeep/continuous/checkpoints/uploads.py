"""Storing checkpoints in the background: a thread that uploads the newest one and never stops the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from ...errors import CheckpointError
from ...storage.files import remove
from ..heartbeat import beat
from .ownership import Ownership
from .stored_objects import State, StoredObjects, in_one_line

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_BEAT_SECONDS = 0.25


class Uploads:
    """Uploads the checkpoints of a run. One that still waits when a newer one comes is dropped for it.

    What fails is tried again, after growing pauses, until a newer one comes. The first failure is reported once, and again
    after something was uploaded in between.
    """

    def __init__(
        self,
        objects: StoredObjects,
        ownership: Ownership,
        on_begin: Callable[[State], None],
        on_stored: Callable[[State], None],
    ) -> None:
        self.uploaded = 0
        self.problem: CheckpointError | None = None  # of the last attempt
        self._objects = objects
        self._ownership = ownership
        self._on_begin = on_begin
        self._on_stored = on_stored
        self._condition = threading.Condition()
        self._waiting: tuple[Path, State, int] | None = None
        self._busy = False
        self._unreported: CheckpointError | None = None
        self._deadline: float | None = None  # for the start of another attempt
        self._stopped = False

    def submit(self, path: Path, state: State, keep: int) -> None:
        """Upload a file, which belongs to this object from now on and is removed."""
        with self._condition:
            dropped, self._waiting = self._waiting, (path, state, keep)
            if not self._busy:
                self._busy = True
                threading.Thread(target=self._work, name=f"upload {path.name}", daemon=True).start()
            self._condition.notify_all()
        if dropped is not None:
            remove(dropped[0])

    def drain(self, seconds: float) -> bool:
        """Wait until the newest one is uploaded. No attempt begins later than this; one that has begun is waited for."""
        with self._condition:
            self._deadline = time.monotonic() + seconds
            self._condition.notify_all()
            while self._busy:
                self._condition.wait(_BEAT_SECONDS)
                beat()
            self._deadline = None
            return self.problem is None

    def stop(self) -> None:
        """Begin no other attempt."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def take_unreported(self) -> CheckpointError | None:
        """A failure of which the user was not told yet."""
        with self._condition:
            problem, self._unreported = self._unreported, None
            return problem

    def _work(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            with self._condition:
                if self._waiting is None or self._stopped:
                    return self._end()
                path, state, keep = self._waiting
                self._waiting = None
            try:
                self._ownership.confirm()
                self._on_begin(state)
                self._objects.put(path, state, keep)
            except Exception as error:
                self._note_failure(error)
                with self._condition:
                    if self._waiting is None:
                        self._waiting = path, state, keep
                    else:
                        remove(path)
                    if not self._pause(pause):
                        return self._end()
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            else:
                pause = _FIRST_PAUSE_SECONDS
                remove(path)
                self._on_stored(state)
                with self._condition:
                    self.uploaded += 1
                    self.problem = None

    def _pause(self, seconds: float) -> bool:
        """Wait before the next attempt; False where there is to be none."""
        until = time.monotonic() + seconds
        while not self._stopped:
            now = time.monotonic()
            if self._deadline is not None and now >= self._deadline:
                return False
            if now >= until:
                return True
            limit = until if self._deadline is None else min(until, self._deadline)
            self._condition.wait(limit - now)
        return False

    def _end(self) -> None:
        if self._waiting is not None:
            remove(self._waiting[0])
            self._waiting = None
        self._busy = False
        self._condition.notify_all()

    def _note_failure(self, error: Exception) -> None:
        if isinstance(error, CheckpointError):
            problem = error
        else:
            problem = CheckpointError(
                f"{self._objects.address} cannot be written: {in_one_line(error, self._objects.store)}"
            )
            problem.__cause__ = error
        with self._condition:
            if self.problem is None:
                self._unreported = problem
            self.problem = problem
