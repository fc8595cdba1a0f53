"""One compile per key, across threads and processes.

Threads of one process share a future. Processes share a lock file per key: `flock`, which the kernel lets go of when
the holder dies, however it dies, so a killed compiler is taken over at once. The file is removed with the lock; a waiter
that gets the lock of a removed file notices (the path leads elsewhere by then) and starts over.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

__all__ = ["FileLock", "Flights", "LockUnavailable"]

T = TypeVar("T")


class Flights(Generic[T]):
    """Calls under way in this process, by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flying: dict[str, _Flight[T]] = {}

    def join(self, key: str, work: Callable[[], T], timeout_seconds: float = -1) -> tuple[T, bool]:
        """The result of `work`, done by one thread for all that ask meanwhile; and whether it was this one.

        Who has waited for `timeout_seconds` does the work itself.
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
                continue  # then one of those who waited takes over
            except _TooLate:
                return work(), True

    def _lead(self, key: str, flight: _Flight[T], work: Callable[[], T]) -> T:
        try:
            result = work()
        except BaseException as error:
            with self._lock:
                del self._flying[key]
            # Every waiter gets the error itself; a KeyboardInterrupt is this thread's own affair.
            flight.land(error=error if isinstance(error, Exception) else _Interrupted())
            raise
        with self._lock:
            del self._flying[key]
        flight.land(result)
        return result


class _Flight(Generic[T]):
    """A result to come. A `concurrent.futures.Future` does the same at five times the price."""

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
    """The leader was interrupted, which says nothing of the work. Stays inside `Flights`."""


class LockUnavailable(Exception):
    """The file system gives no locks, or the time is up: do without. Stays inside the cache."""


# Locks this process holds. A forked child inherits the open files, and with them the locks: it must close its copies,
# or a killed parent's lock would live on in the child.
_held: set[int] = set()


def _close_inherited() -> None:
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_inherited)


class FileLock:
    """A lock between processes, and between threads that use different `FileLock` objects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, timeout_seconds: float) -> None:
        """Wait for the lock; `LockUnavailable` when it cannot be had."""
        deadline = time.monotonic() + timeout_seconds
        pause = 0.0005
        while True:
            try:
                if self._try():
                    return
            except OSError as error:
                raise LockUnavailable(f"{self.path}: {error.strerror}") from None
            if time.monotonic() >= deadline:
                raise LockUnavailable(f"{self.path} is still held after {timeout_seconds:g} s")
            time.sleep(pause)
            pause = min(pause * 2, 0.02)

    def _try(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, flags, 0o600)
        _held.add(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_current(descriptor):
                self._descriptor = descriptor
                return True
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EINTR):
                self._close(descriptor)
                raise
        self._close(descriptor)
        return False

    def _is_current(self, descriptor: int) -> bool:
        try:
            there = self.path.lstat()
        except FileNotFoundError:
            return False
        mine = os.fstat(descriptor)
        return (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev)

    def release(self) -> None:
        """Let go and remove the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and descriptor in _held:  # it is the parent's in a process forked meanwhile
            with contextlib.suppress(OSError):
                self.path.unlink()
            self._close(descriptor)

    @staticmethod
    def _close(descriptor: int) -> None:
        _held.discard(descriptor)
        with contextlib.suppress(OSError):
            os.close(descriptor)

    @contextlib.contextmanager
    def held(self, timeout_seconds: float) -> Iterator[None]:
        """The lock for the length of a block."""
        self.acquire(timeout_seconds)
        try:
            yield
        finally:
            self.release()
