"""Batches in front of the device: each waits for one of the executor's slots, in order."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .arrivals import Arrivals
    from .batch_future import BatchFuture
    from .dispatcher import Dispatcher
    from .submission import Submission

Refused = list[tuple["Submission | None", BaseException]]  # None: it is under way, and the error is the caller's alone


class Backlog:
    """The slots and the batches that wait for one. The caller holds the engine's lock where it says so."""

    def __init__(
        self, depth: int, dispatcher: Dispatcher, arrivals: Arrivals, drop: Callable[[Submission], None]
    ) -> None:
        self._dispatcher = dispatcher
        self._arrivals = arrivals
        self._drop = drop  # called for a batch that was cancelled
        self._numbers = itertools.count()
        self._batches: deque[Submission] = deque()
        self.free_slots = list(range(depth))[::-1]

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def futures(self) -> list[BatchFuture]:
        """Those of the batches that wait."""
        return [submission.future for submission in tuple(self._batches)]

    @property
    def has_free_slot(self) -> bool:
        """Whether a batch that is added now is sent at once."""
        return len(self.free_slots) > len(self._batches)

    @property
    def is_pressing(self) -> bool:
        """Whether some batch waits that nobody is about to make way for."""
        return any(not one.relaxed or one.future.urgent for one in tuple(self._batches))

    def add(self, submission: Submission, *, unknown: bool = False) -> Refused:
        """Send a batch that was staged, or have it wait. The caller holds the lock.

        `unknown`: nobody else has its future yet, so that it cannot be cancelled.
        """
        if unknown and self.free_slots and not self._batches:
            submission.future.begin()
            refused: Refused = []
            self._send(submission, refused)
            return refused
        self._batches.append(submission)
        return self.send()

    def has(self, submission: Submission) -> bool:
        """Whether a batch waits here or was sent, so that its future will have an outcome. The caller holds the lock."""
        return submission in tuple(self._batches) or self._arrivals.has(submission)

    def free(self, submission: Submission) -> Refused:
        """The slot of a batch is free: send the next one. The caller holds the lock."""
        submission.has_slot = False
        self.free_slots.append(submission.slot)
        return self.send() if self._batches else []

    def send(self) -> Refused:
        """Send as many batches as there are free slots; returns what could not be sent, and why.

        The caller holds the lock, and reports them after releasing it: that runs the users' callbacks.
        """
        refused: Refused = []
        while self._batches and self.free_slots:
            # Not `popleft`: Ctrl-C may come right after a call, and then nobody would have the batch.
            submission = self._batches[0]
            del self._batches[0]
            try:
                if submission.future.set_running_or_notify_cancel():
                    self._send(submission, refused)
                else:
                    self._drop(submission)
            except BaseException as error:  # Ctrl-C, outside what `_send` guards
                if submission.future.cancelled():
                    self._drop(submission)
                    refused.append((None, error))
                else:
                    refused.append((submission, error))
        return refused

    def _send(self, submission: Submission, refused: Refused) -> None:
        try:
            # Not `pop`: Ctrl-C may come right after a call, and then nobody would have the slot.
            submission.slot = self.free_slots[-1]
            submission.has_slot = True
            del self.free_slots[-1]
            submission.number = next(self._numbers)
            self._dispatcher.send(submission)
            self._arrivals.add(submission)
        except BaseException as error:
            if self._arrivals.has(submission):
                refused.append((None, error))
                return
            refused.append((submission, error))
            if submission.has_slot:
                submission.has_slot = False
                self.free_slots.append(submission.slot)
            try:
                self._dispatcher.recover(submission)
            except BaseException as again:  # Ctrl-C: the device was not waited for, so this memory is never used again
                refused.append((None, again))

    def drop_cancelled(self) -> None:
        """Take out the batches whose futures were cancelled. The caller holds the lock."""
        for submission in [one for one in self._batches if one.future.cancelled()]:
            self._batches.remove(submission)
            submission.future.set_running_or_notify_cancel()
            self._drop(submission)

    def close(self) -> None:
        """Forget the engine, which holds this. No batch waits."""
        self._drop = _keep


def _keep(_: Submission) -> None:
    return None
