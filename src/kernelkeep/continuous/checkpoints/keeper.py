"""When the checkpoints of a run begin, and the last one, however the run ends."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import numpy as np

from ..run_options import RunOptions
from ..session import Session
from .arriving import Arriving
from .block_digest import key_of
from .claim import CheckpointClaim
from .header import CheckpointHeader
from .snapshot import Snapshots
from .writer import CheckpointWriter

_LARGEST_SHARE = 1 / 66  # of the time of a run that it waits for snapshots; beyond that there are fewer of them


class CheckpointKeeper:
    """Makes the checkpoints of a run."""

    def __init__(self, session: Session, options: RunOptions, claim: CheckpointClaim | None) -> None:
        self._session = session
        self._unchanged = claim is not None and claim.holds_state
        self._options = options
        self._claim = claim
        self.writer = None if claim is None else CheckpointWriter(claim, options.keep_checkpoints)
        self._snapshots = None if claim is None else Snapshots(session, key_of(claim.lineage))
        self._waited_seconds = 0.0  # for the last snapshot
        self._last_time = time.perf_counter()
        self._last_iteration = session.iteration
        self._beginning = (session.iteration, session.taken)
        self._ending = False

    def begin_if_due(self) -> None:
        """Between two turns: take a snapshot if one is due, and have it written while the run goes on."""
        writer, options, session = self.writer, self._options, self._session
        if writer is None or self._claim is None:
            return
        if session.measured.dispatches:  # it compiled, and runs
            self._claim.begin()
        if writer.busy:
            return
        due = options.checkpoint_every is not None and time.perf_counter() - self._last_time >= max(
            options.checkpoint_every, self._waited_seconds / _LARGEST_SHARE
        )
        if options.checkpoint_iterations is not None:
            due = due or session.iteration - self._last_iteration >= options.checkpoint_iterations
        if due and session.iteration > self._last_iteration:
            self._begin(finished=False)

    def _begin(self, *, finished: bool) -> None:
        assert self.writer is not None and self._snapshots is not None
        self._unchanged = False
        self.writer.flush()  # it reads the memory that the snapshot goes to
        try:
            waited = self._snapshots.take(self._submit, finished=finished)
        except MemoryError as error:
            self.writer.note_failure(f"there is not enough memory for a copy of the state ({error})")
        else:
            self._waited_seconds = waited
            self._session.measured.snapshot_seconds += waited
        self._last_time = time.perf_counter()
        self._last_iteration = self._session.iteration

    def _submit(self, header: CheckpointHeader, arrays: dict[str, np.ndarray[Any, Any]], arriving: Arriving) -> None:
        assert self.writer is not None
        self.writer.submit(header, arrays, arriving=arriving)

    def end(self, *, finished: bool) -> None:
        """Make the last checkpoint, and wait for it."""
        self._ending = True
        if self.writer is None or self._claim is None:
            return
        self._claim.begin()
        if self._unchanged and not self._session.steered and self._session.iteration == self._last_iteration:
            self.close()
            return
        self._begin(finished=finished)
        self.close()

    def end_after(self, error: BaseException) -> None:
        """Make the last checkpoint of a run that an error ends; a note on the error says which iteration the file holds.

        Where the error left the device unusable, the file stays as it is.
        """
        session = self._session
        if session.lost:
            self._close_writer()
            return
        try:
            session.synchronize()  # what was still running
            nothing_new = (session.iteration, session.taken) == self._beginning and not session.steered
            if self.writer is None or self._ending or nothing_new:
                self.close()
                return
            self.end(finished=False)
        except Exception as problem:
            with contextlib.suppress(Exception):
                self.close()
            if self.writer is not None:
                error.add_note(f"the last state could not be saved to {self.writer.where}: {problem}")
            return
        error.add_note(self.note())

    def note(self) -> str:
        """Where the last state was saved, or why not; empty without a checkpoint file."""
        if self.writer is None:
            return ""
        state = f"the state at iteration {self._session.iteration:,}"
        if self.writer.problem is None:
            return f"{state} is in {self.writer.where}"
        return f"{state} could not be saved: {self.writer.problem}"

    def _close_writer(self) -> None:
        if self.writer is not None:
            with contextlib.suppress(Exception):
                self.writer.close()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        if self._snapshots is not None:
            self._snapshots.close()
