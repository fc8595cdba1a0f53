"""Batches on the device, in order, and who completes them when they arrive.

A batch is completed by whoever waits for its result, which saves two changes of threads: for a small batch these take longer than
all the rest. What nobody waits for is completed by a thread of the executor's. It is woken at once where somebody depends on it,
as callbacks do, and batches in the backlog; otherwise it looks now and then, and ever more rarely while others do the work: on a
busy host it would take the core of a thread that waits, which then stands still for milliseconds.

Completing is a turn: one thread has it at a time, so that results come in order.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch_future import BatchFuture
    from .submission import Submission

PATIENCE_SECONDS = (
    5e-3  # a batch that takes longer is left to the executor's thread, and its result is waited for asleep
)
_LOOK_SECONDS = 4e-3  # the first pause between two looks
_MOST_LOOK_SECONDS = 64e-3
_LOOKS = 10  # with nothing under way, before the thread sleeps until it is woken


class Arrivals:
    """The batches under way. `complete(submission, in_thread)` returns False if only the executor's thread can go on."""

    def __init__(self, complete: Callable[[Submission, bool], bool], pressed: Callable[[], bool]) -> None:
        self._complete = complete
        self._pressed = pressed  # whether somebody depends on the thread, apart from the batches under way
        self._under_way: deque[Submission] = deque()
        self._thread: threading.Thread | None = None
        self._thread_id = 0
        self._ended = False
        self.renew_locks()

    def renew_locks(self) -> None:
        """In a forked process: a thread that does not exist there may hold the old ones."""
        # Whose it is, is known without a variable: Ctrl-C may come when it is taken, and before anybody could note that.
        self._turn = threading.RLock()
        self.settling = threading.RLock()  # of futures; reentrant, because a signal's handler may ask one
        self._helper = 0  # the thread that waits, and has the turn
        self._bell = threading.Lock()
        self._bell.acquire()
        self._asleep = False

    def add(self, submission: Submission) -> None:
        """A batch is on the device. The caller keeps the order. If this raises, `has` says whether the batch was added."""
        if self._thread is None:
            self._start()
        self._under_way.append(submission)
        if self._asleep or submission.future.urgent:
            self.wake()

    def has(self, submission: Submission) -> bool:
        """Whether a batch was added: it is under way, or it has its outcome."""
        # In this order: a batch is settled first, and removed then.
        return submission in tuple(self._under_way) or submission.future.settled

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="kernelkeep-executor", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # Ctrl-C, or the system has no more threads
            if not self._thread_id:
                self._thread = None  # if it runs after all, it says so
            raise

    @property
    def is_here(self) -> bool:
        """Whether this is the executor's thread."""
        return threading.get_ident() == self._thread_id

    def wake(self) -> None:
        """Have the thread look now."""
        with contextlib.suppress(RuntimeError):  # it was woken already
            self._bell.release()

    # --- in threads that wait

    def help(self, future: BatchFuture, timeout: float | None) -> float | None:
        """Complete batches until this one is done, as long as they arrive soon; else the thread is told to do it.

        Returns what is left of the timeout.
        """
        me = threading.get_ident()
        if me == self._thread_id or self._helper == me:
            return timeout  # a callback, or a signal's handler, that waits for a later batch
        start = time.perf_counter()
        patience = PATIENCE_SECONDS if timeout is None else max(0.0, min(timeout, PATIENCE_SECONDS))
        try:
            if self._turn.acquire(blocking=False) or self._turn.acquire(timeout=patience):
                self._helper = me
                while not future.settled and self._complete_next(start + patience):
                    pass
        finally:
            # Nothing may be called before this, or Ctrl-C could come there.
            if self._helper == me:
                self._helper = 0
            try:
                self._turn.release()
            except RuntimeError:  # another thread has it
                pass
        if not future.settled:
            future.hurry()
        return None if timeout is None else max(0.0, timeout - (time.perf_counter() - start))

    def complete_only(self, submission: Submission) -> None:
        """Complete a batch that is known to be done, if it is the only one under way and no other thread is at it."""
        me = threading.get_ident()
        if me == self._thread_id or self._helper == me:
            return
        try:
            if self._turn.acquire(blocking=False):
                self._helper = me
                if len(self._under_way) == 1 and self._under_way[0] is submission:
                    self._complete_first(submission, False)
        finally:
            if self._helper == me:
                self._helper = 0
            try:
                self._turn.release()
            except RuntimeError:
                pass

    def make_way(self, enough: Callable[[], bool], seconds: float) -> None:
        """Complete batches until it is enough, as far as they arrive so soon and no other thread is at it."""
        me = threading.get_ident()
        if not self._under_way or self.is_here or self._helper == me:
            return
        try:
            if self._turn.acquire(blocking=False):
                self._helper = me
                deadline = time.perf_counter() + seconds if seconds else 0.0
                while not enough() and self._complete_next(deadline):
                    pass
        finally:
            if self._helper == me:
                self._helper = 0
            try:
                self._turn.release()
            except RuntimeError:
                pass

    def look(self) -> None:
        """Complete what has arrived, without waiting."""
        self.make_way(lambda: False, 0.0)

    def _complete_next(self, deadline: float) -> bool:
        """Complete the first batch under way, in this thread's turn; False if there is none that arrives in time."""
        if not self._under_way:
            return False
        first = self._under_way[0]
        if first.future.urgent or not first.arrives_before(deadline, len(self._under_way) - 1):
            return False
        if not self._complete_first(first, False):
            first.future.hurry()
            return False
        return True

    def _complete_first(self, first: Submission, in_thread: bool) -> bool:
        """Complete a batch in this thread's turn. It is taken off afterwards: Ctrl-C may come in between."""
        if not first.future.settled and not self._complete(first, in_thread):
            return False
        self._under_way.popleft()
        return True

    # --- in the executor's thread

    def _run(self) -> None:
        this, its_id = threading.current_thread(), threading.get_ident()
        if self._thread_id:
            return  # another one runs: Ctrl-C came while this one was started
        self._thread, self._thread_id = this, its_id
        looks, pause = 0, _LOOK_SECONDS
        while True:
            if self._depended_on():
                with self._turn:
                    while self._depended_on():
                        self._complete_first(self._under_way[0], True)
            elif self._ended:
                return
            elif self._under_way or looks < _LOOKS:
                looks = 0 if self._under_way else looks + 1
                if not self._bell.acquire(timeout=pause):
                    if self._look_in_thread():
                        pause = _LOOK_SECONDS
                    elif self._under_way:  # idling says nothing about the next batch: somebody may wait for it, or not
                        pause = min(2 * pause, _MOST_LOOK_SECONDS)
            else:
                self._asleep = True
                if not self._under_way and not self._ended:  # else a batch came this very moment, and nobody rang
                    self._bell.acquire()
                self._asleep = False
                looks, pause = 0, _LOOK_SECONDS

    def _depended_on(self) -> bool:
        under_way = tuple(self._under_way)
        return bool(under_way) and (any(one.future.urgent for one in under_way) or self._pressed())

    def _look_in_thread(self) -> bool:
        """Complete what has arrived; whether that was anything."""
        found = False
        if self._under_way and self._turn.acquire(blocking=False):
            try:
                while self._under_way and self._under_way[0].arrives_before(0.0):
                    found = True
                    self._complete_first(self._under_way[0], True)
            finally:
                self._turn.release()
        return found

    def close(self) -> None:
        """End the thread. Nothing is under way."""
        thread, self._thread = self._thread, None
        self._ended = True
        if thread is not None:
            self.wake()
            thread.join()
            self._thread_id = 0  # another thread may get it
        self._complete = self._pressed = _nothing  # futures keep this, and would keep the engine


def _nothing(*_: Any) -> bool:
    return False
