"""The thread that calls the callbacks of futures: one for a resident, started by its first callback."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from ..errors import TaskSilent

LEAST_SLEEP, MOST_SLEEP = 20e-6, 1e-3
LOOK_SECONDS = 0.1
IDLE_SECONDS = 1.0  # a thread without futures ends after that, and a new one is started when needed

Watched = tuple[Any, Callable[[Any], object]]

_log = logging.getLogger("kernelkeep")


class Waiter:
    """Futures and the functions to call when they are done.

    A future whose device is found dead gets the reason as its `failure`, and its function is called.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Futures of a lane are done one after the other, so only the first one of each queue is looked at. The queues are heaps
        # of (place in the queue, number, future, function).
        self._queues: dict[int, list[tuple[int, int, Any, Callable[[Any], object]]]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._silent: Any = None  # the future whose task was last found to take long

    def add(self, future: Any, function: Callable[[Any], object]) -> None:
        """Call `function(future)` from the waiter's thread when the future is done."""
        with self._changed:
            if not self._closed:
                queue = self._queues.setdefault(future.queue(), [])
                heapq.heappush(queue, (future.place(), next(self._numbers), future, function))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._watch, name="kernelkeep-resident-waiter", daemon=True)
                    self._thread.start()
                self._changed.notify()
                return
        call(function, future)

    def close(self) -> None:
        """Call the functions that are left, whatever the state of their futures, and end the thread."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def mark_lost(self) -> None:
        """In a forked child: the thread does not exist here, and may have held the lock."""
        self._changed = threading.Condition()
        self._queues, self._thread, self._closed = {}, None, True

    def _watch(self) -> None:
        pause, looked = LEAST_SLEEP, time.monotonic()
        while True:
            with self._changed:
                if not self._queues and not self._closed:
                    self._changed.wait(IDLE_SECONDS)
                    looked = time.monotonic()
                if not self._queues:
                    self._thread = None
                    return
                look = time.monotonic() - looked > LOOK_SECONDS
                finished = self._finished(look)
            for future, function in finished:
                call(function, future)
            if look:
                looked = time.monotonic()
            if finished:
                pause = LEAST_SLEEP
                del finished, future, function  # keep no results alive
            else:
                time.sleep(pause)
                pause = min(2 * pause, MOST_SLEEP)

    def _finished(self, look: bool) -> list[Watched]:
        """Take the futures that are done out of the queues; all of them when the waiter is being closed."""
        finished: list[Watched] = []
        for key, queue in list(self._queues.items()):
            while queue and (self._closed or self._is_over(queue[0][2], look)):
                finished.append(heapq.heappop(queue)[2:])
            if not queue:
                del self._queues[key]
        return finished

    def _is_over(self, future: Any, look: bool) -> bool:
        """Whether a future is done; `look` whether its device still answers, and if not make that its failure."""
        if look and not future.done():
            try:
                future.look()
            except TaskSilent as error:  # the task goes on, so this is no outcome; nobody waits here, so it is logged
                if self._silent is not future:
                    self._silent = future
                    _log.warning("%s", error)
            except Exception as error:
                future.failure = error
        return bool(future.done())


def call(function: Callable[[Any], object], future: Any) -> None:
    """Call a callback; what it raises is logged, for there is nobody to raise it to."""
    try:
        function(future)
    except BaseException:  # the thread goes on: others wait for it
        _log.exception("a callback of %r raised", future)
