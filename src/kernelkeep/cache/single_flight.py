"""One compile per key among the threads of a process: the first does the work, the others wait for its result.

Among processes a lock per key does the same (`TierChain.alone`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


def _do_nothing(_: object) -> None:
    """For results that nobody needs to hold."""


class Flights(Generic[T]):
    """The work that threads of this process do at the moment, by key.

    Where a result must be held, each thread gets one that is: `work` returns it so, `hold` holds it for one thread more, and
    `drop` gives that back.
    """

    def __init__(self, hold: Callable[[T], object] = _do_nothing, drop: Callable[[T], object] = _do_nothing) -> None:
        self._hold = hold
        self._drop = drop
        self._lock = threading.Lock()
        self._flying: dict[str, _Flight[T]] = {}

    def join(self, key: str, work: Callable[[], T], timeout_seconds: float = -1) -> tuple[T, bool]:
        """The result of `work`, and whether this thread did the work or another one that had begun before.

        A thread that has waited for `timeout_seconds` does the work itself.
        """
        while True:
            mine: _Flight[T] = _Flight()
            try:
                with self._lock:
                    flight = self._flying.setdefault(key, mine)
                    if flight is not mine:
                        gate = flight.new_gate()
                        flight.waiting += 1
                if flight is mine:
                    return self._lead(key, mine, work), True
            except BaseException as error:
                # Once more: Ctrl-C comes between any two lines, and nobody may wait for a thread that has gone.
                self._end(key, mine, error)
                raise
            try:
                return self._wait(flight, gate, timeout_seconds), False
            except _Interrupted:
                continue  # one of the waiting threads does the work now
            except _TooLate:
                return work(), True

    def waiting(self, key: str) -> int:
        """How many threads wait for the result of a key."""
        with self._lock:
            flight = self._flying.get(key)
            return 0 if flight is None else flight.waiting

    def _wait(self, flight: _Flight[T], gate: threading.Lock, timeout_seconds: float) -> T:
        try:
            result = flight.result(gate, timeout_seconds)
            self._hold(result)
            return result
        finally:
            with self._lock:
                flight.waiting -= 1
                held = () if flight.waiting else flight.held
            for result in held:
                self._drop(result)

    def _lead(self, key: str, flight: _Flight[T], work: Callable[[], T]) -> T:
        try:
            result = work()
        except BaseException as error:
            self._end(key, flight, error)
            raise
        with self._lock:
            del self._flying[key]
            if flight.waiting:  # until the last of them has its own
                self._hold(result)
                flight.held = (result,)
        if flight.held:
            flight.land(result)
        return result

    def _end(self, key: str, flight: _Flight[T], error: BaseException) -> None:
        """The work failed, or this thread was interrupted. Doing it twice is fine."""
        with self._lock:
            if self._flying.get(key) is flight:
                del self._flying[key]
        # The waiters get the error too, but not a KeyboardInterrupt, which is meant for this thread.
        flight.land(error=error if isinstance(error, Exception) else _Interrupted())


class _Flight(Generic[T]):
    """A result to come. A `concurrent.futures.Future` does the same and takes longer."""

    # Defaults of the class and no `__init__`: nobody waits for most of them, and then nothing of it is set.
    waiting = 0  # threads; changed with the lock of all flights
    held: tuple[T, ...] = ()  # the result, if the last thread that waits is to drop it
    _result: T | None = None
    _error: Exception | None = None
    _is_known = False
    # A lock for each thread that waits: what they share, one that is interrupted could leave taken.
    _gates: tuple[threading.Lock, ...] = ()

    def new_gate(self) -> threading.Lock:
        """What a thread waits at; called with the lock of all flights."""
        gate = threading.Lock()
        gate.acquire()
        self._gates += (gate,)
        return gate

    def land(self, result: T | None = None, error: Exception | None = None) -> None:
        """Wake the waiting threads, when no other can come. The first time counts; a thread interrupted here comes again."""
        if not self._is_known:
            self._result, self._error, self._is_known = result, error, True
        for gate in self._gates:
            with contextlib.suppress(RuntimeError):  # it is open
                gate.release()

    def result(self, gate: threading.Lock, timeout_seconds: float) -> T:
        if not gate.acquire(timeout=timeout_seconds):
            raise _TooLate
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class _TooLate(Exception):
    """The time is up. Stays inside `Flights`."""


class _Interrupted(Exception):
    """The working thread was interrupted; the work itself did not fail. Stays inside `Flights`."""
