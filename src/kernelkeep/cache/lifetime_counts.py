"""The counts of one cache object on their way into the sums of all processes: each is added once, and none is lost."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from .stats import COUNTERS


class _Sums(Protocol):
    """Where the sums are kept."""

    def add_to_sums(self, counts: dict[str, float]) -> bool: ...
    def read_sums(self) -> dict[str, float]: ...


class LifetimeCounts:
    """`read` gives the counts of the cache object, `sums` keeps those of all processes."""

    def __init__(self, read: Callable[[], dict[str, float]], sums: _Sums) -> None:
        self._read = read
        self._sums = sums
        self._saved = dict.fromkeys(COUNTERS, 0.0)
        self._lock = threading.Lock()

    def _unsaved(self) -> dict[str, float]:
        return {name: value - self._saved[name] for name, value in self._read().items()}

    def save(self) -> None:
        """Add what was counted since the last time, and what caches that are gone left behind."""
        save_abandoned()
        with self._lock:
            new = self._unsaved()
            if self._sums.add_to_sums(new):
                self._saved = {name: self._saved[name] + value for name, value in new.items()}

    def totals(self) -> dict[str, float]:
        """The counts of all processes so far, those of this object included."""
        self.save()
        sums, unsaved = self._sums.read_sums(), self._unsaved()
        return {name: sums[name] + unsaved[name] for name in COUNTERS}

    def abandon(self) -> None:
        """Have somebody else save what is left. For the garbage collector, which may run while this thread holds a lock."""
        _abandoned.append((self._sums, self._unsaved()))


_abandoned: deque[tuple[_Sums, dict[str, float]]] = deque()


def save_abandoned() -> None:
    """Add the counts of caches that were dropped without being closed."""
    with contextlib.suppress(IndexError):
        while True:
            sums, counts = _abandoned.popleft()
            sums.add_to_sums(counts)


def discard_abandoned() -> None:
    """In a forked child: these counts are the parent's."""
    _abandoned.clear()
