"""Work that a chain does in the background: writes to remote tiers, and asking whether one that failed works again.

One daemon thread, started when it is needed, does one task after the other. The queue is bounded by number and by bytes. A task
that says when to try it again waits for that time and keeps nobody from the next task.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable

from ..platforms import system

MOST_TASKS = 512
MOST_BYTES = 256 << 20
_MOST_TRIES = 6
_IDLE_SECONDS = 5.0  # the thread ends after that without work


class Task:
    """`run` returns None when it is done, or the seconds to wait before it is tried again. It does not raise.

    `key`: a later task with the same key takes the place of an earlier one. `dropped` is called if it is given up.
    """

    __slots__ = ("dropped", "group", "key", "nbytes", "not_before", "run", "tries")

    def __init__(
        self,
        key: Hashable,
        run: Callable[[], float | None],
        dropped: Callable[[], None],
        *,
        group: str = "",
        nbytes: int = 0,
    ) -> None:
        self.key = key
        self.run = run
        self.dropped = dropped
        self.group = group
        self.nbytes = nbytes
        self.tries = 0
        self.not_before = 0.0


class BackgroundTasks:
    """Tasks of one chain. Safe under threads; a forked child starts with none."""

    def __init__(self, most_tasks: int = MOST_TASKS, most_bytes: int = MOST_BYTES) -> None:
        self._most_tasks, self._most_bytes = most_tasks, most_bytes
        self._closed = False
        self.forget()
        _instances.add(self)

    def forget(self) -> None:
        """Begin anew. In a forked child the tasks are the parent's."""
        self._changed = threading.Condition(threading.Lock())
        self._waiting: dict[Hashable, Task] = {}
        self._running: Task | None = None
        self._thread: threading.Thread | None = None
        self._after: dict[str, list[Callable[[], None]]] = {}
        self._tried = 0

    def add(self, task: Task) -> bool:
        """Do it soon. False, and `dropped` was called, where the queue is full or closed."""
        with self._changed:
            earlier = self._waiting.pop(task.key, None)
            size = sum(waiting.nbytes for waiting in self._waiting.values()) + task.nbytes
            fits = len(self._waiting) < self._most_tasks and (size <= self._most_bytes or not self._waiting)
            taken = fits and not self._closed and self._start()
            if taken:
                if earlier is not None:  # a server that fails is not asked sooner because there is something newer
                    task.tries, task.not_before = earlier.tries, earlier.not_before
                self._waiting[task.key] = task
                self._changed.notify_all()
            elif earlier is not None:
                self._waiting[task.key] = earlier
        if not taken:
            task.dropped()
        return taken

    def _start(self) -> bool:
        if self._thread is None:
            thread = threading.Thread(target=_run, args=(self,), name="kernelkeep-background", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the interpreter is ending, or there are too many threads
                return False
            self._thread = thread
        return True

    def after(self, group: str, callback: Callable[[], None]) -> None:
        """Call it once every task of a group that waits now was tried; at once where there is none."""
        with self._changed:
            if self._is_untried(group):
                self._after.setdefault(group, []).append(callback)
                return
        callback()

    def _is_untried(self, group: str) -> bool:
        running = self._running
        tasks = list(self._waiting.values()) + ([running] if running is not None else [])
        return any(task.group == group and task.tries == 0 for task in tasks)

    def flush(self, timeout_seconds: float, stalled_seconds: float | None = None) -> bool:
        """Wait until everything that can be done now is done. Whether nothing is left, not even to be tried again later.

        With `stalled_seconds`, no longer than that for any one task.
        """
        patience = timeout_seconds if stalled_seconds is None else stalled_seconds
        begun = time.monotonic()
        with self._changed:
            progress, seen = begun, self._tried
            while self._running is not None or self._next_due() <= time.monotonic():
                now = time.monotonic()
                if self._tried != seen:
                    progress, seen = now, self._tried
                left = min(begun + timeout_seconds, progress + patience) - now
                if left <= 0:
                    break
                self._changed.wait(left)
            return self._running is None and not self._waiting

    def _next_due(self) -> float:
        return min((task.not_before for task in self._waiting.values()), default=float("inf"))

    def close(self, timeout_seconds: float, stalled_seconds: float | None = None) -> None:
        """`flush`, and drop what is left. The thread ends by itself; nobody waits for a task that hangs."""
        self.flush(timeout_seconds, stalled_seconds)
        with self._changed:
            self._closed = True
            left = list(self._waiting.values())
            self._waiting.clear()
            callbacks = [one for group in self._after.values() for one in group]
            self._after.clear()
            self._changed.notify_all()
        for task in left:
            task.dropped()
        for callback in callbacks:
            callback()

    # --- the thread

    def take(self) -> Task | None:
        """The next task that is due; None when the thread should end."""
        with self._changed:
            idle_until = time.monotonic() + _IDLE_SECONDS
            while True:
                now = time.monotonic()
                due = next((task for task in self._waiting.values() if task.not_before <= now), None)
                if due is not None:
                    del self._waiting[due.key]
                    self._running = due
                    return due
                if self._closed or (not self._waiting and now >= idle_until):
                    self._thread = None
                    return None
                self._changed.wait(min(self._next_due(), max(idle_until, now + 0.1)) - now)

    def done(self, task: Task, again_seconds: float | None) -> None:
        """A task was tried."""
        dropped = False
        with self._changed:
            self._running = None
            self._tried += 1
            task.tries += 1
            if again_seconds is not None:
                dropped = self._closed or task.tries >= _MOST_TRIES or len(self._waiting) >= self._most_tasks
                if not dropped and task.key not in self._waiting:
                    task.not_before = time.monotonic() + again_seconds
                    self._waiting[task.key] = task
            callbacks = [] if self._is_untried(task.group) else self._after.pop(task.group, [])
            self._changed.notify_all()
        if dropped:
            task.dropped()
        for callback in callbacks:
            callback()


def _run(tasks: BackgroundTasks) -> None:
    while True:
        task = tasks.take()
        if task is None:
            return
        again: float | None = None
        try:
            again = task.run()
        finally:
            tasks.done(task, again)
        del task


_instances: weakref.WeakSet[BackgroundTasks] = weakref.WeakSet()


def _in_child() -> None:
    for tasks in list(_instances):
        tasks.forget()


system.on_fork(after_in_child=_in_child)
