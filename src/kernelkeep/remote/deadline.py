"""Calls that return in time, whatever the other side does.

A library's own time limits are not enough: a server that sends one byte now and then, or a resolver of names that hangs, keeps
a call beyond them. So the call runs in a thread, and the caller stops waiting. The threads are daemons: none of them
keeps the interpreter from ending. Their number is bounded: when all of them hang, further calls fail at once.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..platforms import system

T = TypeVar("T")
U = TypeVar("U")

_IDLE_SECONDS = 30.0  # a thread without work ends after that


class DeadlineExceeded(TimeoutError):
    """The call did not return in time. It may still go on, and its result is dropped."""


class _Call:
    __slots__ = ("begun", "done", "error", "result", "work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self.begun = time.monotonic()
        self.work: Callable[[], Any] | None = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class DeadlineThreads:
    """Up to `most` threads for calls with a deadline. Safe under threads; a forked child starts with none."""

    def __init__(self, most: int = 8, name: str = "kernelkeep-remote") -> None:
        self._most = most
        self._name = name
        self.forget()
        _instances.add(self)

    def forget(self) -> None:
        """Begin anew. In a forked child: the threads are the parent's, and one of them may have held the lock."""
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._threads = 0
        self._idle = 0
        self._running: set[_Call] = set()

    @property
    def longest_seconds(self) -> float:
        """For how long the oldest call runs now; 0 where none does."""
        with self._lock:
            return time.monotonic() - min((call.begun for call in self._running), default=time.monotonic())

    @property
    def busy(self) -> int:
        """How many calls run now, those that nobody waits for any more included."""
        with self._lock:
            return self._threads - self._idle

    def call(self, work: Callable[[], T], timeout_seconds: float) -> T:
        """The result of `work`, or its exception; `DeadlineExceeded` after `timeout_seconds`."""
        call = _Call(work)
        with self._lock:
            if self._idle:
                self._idle -= 1
            elif self._threads < self._most:
                try:
                    threading.Thread(
                        target=_serve, args=(weakref.ref(self), self._calls), name=self._name, daemon=True
                    ).start()
                except RuntimeError as error:  # the interpreter is ending, or there are too many threads
                    raise DeadlineExceeded(f"no thread could be started: {error}") from None
                self._threads += 1
            else:
                raise DeadlineExceeded(f"{self._most} earlier calls still wait for an answer")
            self._running.add(call)
        self._calls.put(call)
        if not call.done.acquire(timeout=max(0.0, timeout_seconds)):
            raise DeadlineExceeded(f"there was no answer within {timeout_seconds:.3g} s")
        if call.error is not None:
            raise call.error
        result: T = call.result
        return result

    def close(self) -> None:
        """End the threads that have no work. A later call starts new ones."""
        with self._lock:
            for _ in range(self._idle):
                self._calls.put(None)
            self._threads -= self._idle
            self._idle = 0

    def finished(self, call: _Call) -> None:
        """A thread has done its call and waits for the next."""
        with self._lock:
            self._running.discard(call)
            self._idle += 1

    def may_end(self) -> bool:
        """Whether a thread that found no call for a while may end; not if a call is on its way to it."""
        with self._lock:
            if not self._idle:
                return False
            self._idle -= 1
            self._threads -= 1
            return True


def _serve(owner: weakref.ref[DeadlineThreads], calls: queue.SimpleQueue[_Call | None]) -> None:
    while True:
        try:
            call = calls.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            threads = owner()
            if threads is None or threads.may_end():
                return
            continue
        if call is None:
            return
        work, call.work = call.work, None
        try:
            call.result = work() if work is not None else None
        except BaseException as error:
            call.error = error
        work = None
        threads = owner()
        if threads is not None:
            threads.finished(call)  # before the caller goes on, so that its next call finds this thread
        call.done.release()
        del call, threads


def in_parallel(work: Callable[[T], U], items: Iterable[T], most: int = 16) -> list[U]:
    """`work` of each item, in order, by up to `most` daemon threads. The first exception is raised, and the rest not begun."""
    pending = list(enumerate(items))[::-1]
    results: dict[int, U] = {}
    errors: list[BaseException] = []

    def run() -> None:
        while not errors:
            try:
                number, item = pending.pop()
            except IndexError:
                return
            try:
                results[number] = work(item)
            except BaseException as error:
                errors.append(error)

    count = len(pending)
    threads = [
        threading.Thread(target=run, name="kernelkeep-parallel", daemon=True) for _ in range(min(most, count) - 1)
    ]
    for thread in threads:
        thread.start()
    run()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[number] for number in range(count)]


_instances: weakref.WeakSet[DeadlineThreads] = weakref.WeakSet()


def _in_child() -> None:
    for threads in list(_instances):
        threads.forget()


system.on_fork(after_in_child=_in_child)
