"""One compile per key among the threads of a process: the first does the work, the others wait for its result.

Among processes a lock per key does the same (`TierChain.alone`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Flights(Generic[T]):
    """The work that threads of this process do at the moment, by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flying: dict[str, _Flight[T]] = {}

    def join(self, key: str, work: Callable[[], T], timeout_seconds: float = -1) -> tuple[T, bool]:
        """The result of `work`, and whether this thread did the work or another one that had begun before.

        A thread that has waited for `timeout_seconds` does the work itself.
        """
        while True:
            with self._lock:
                flight = self._flying.get(key)
                leading = flight is None
                if flight is None:
                    flight = self._flying[key] = _Flight()
            if leading:
                return self._lead(key, flight, work), True
            try:
                return flight.result(timeout_seconds), False
            except _Interrupted:
                continue  # one of the waiting threads does the work now
            except _TooLate:
                return work(), True

    def _lead(self, key: str, flight: _Flight[T], work: Callable[[], T]) -> T:
        try:
            result = work()
        except BaseException as error:
            with self._lock:
                del self._flying[key]
            # The waiters get the error too, but not a KeyboardInterrupt, which is meant for this thread.
            flight.land(error=error if isinstance(error, Exception) else _Interrupted())
            raise
        with self._lock:
            del self._flying[key]
        flight.land(result)
        return result


class _Flight(Generic[T]):
    """A result to come. A `concurrent.futures.Future` does the same and takes five times as long."""

    def __init__(self) -> None:
        self._result: T | None = None
        self._error: Exception | None = None
        self._landed = threading.Lock()
        self._landed.acquire()

    def land(self, result: T | None = None, error: Exception | None = None) -> None:
        self._result, self._error = result, error
        self._landed.release()

    def result(self, timeout_seconds: float) -> T:
        if not self._landed.acquire(timeout=timeout_seconds):
            raise _TooLate
        self._landed.release()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]


class _TooLate(Exception):
    """The time is up. Stays inside `Flights`."""


class _Interrupted(Exception):
    """The working thread was interrupted; the work itself did not fail. Stays inside `Flights`."""
