"""The counts of one cache object on their way into the sums of all processes: each is added once, and none is lost.

They go into the diary of the cache folder too, with the times between which they were counted.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from .stats import COUNTERS


class _Sums(Protocol):
    """Where the sums are kept."""

    def add_to_sums(self, counts: dict[str, float]) -> bool: ...
    def read_sums(self) -> dict[str, float]: ...
    def note_counts(self, counts: dict[str, float], since: float) -> None: ...


_NOTE_SECONDS = 10.0  # between two records of a cache that compiles one program after the other


class LifetimeCounts:
    """`read` gives the counts of the cache object, `sums` keeps those of all processes."""

    def __init__(self, read: Callable[[], dict[str, float]], sums: _Sums) -> None:
        self._read = read
        self._sums = sums
        self._saved = dict.fromkeys(COUNTERS, 0.0)
        self._noted = self._saved  # what the diary has
        self._noted_at = time.time()
        self._lock = threading.Lock()

    def _unsaved(self) -> dict[str, float]:
        return {name: value - self._saved[name] for name, value in self._read().items()}

    def save(self, *, note: bool = False) -> None:
        """Add what was counted since the last time, and what caches that are gone left behind.

        The diary gets it with `note`, and otherwise now and then.
        """
        save_abandoned()
        with self._lock:
            new = self._unsaved()
            if self._sums.add_to_sums(new):
                self._saved = {name: self._saved[name] + value for name, value in new.items()}
            if note or time.time() - self._noted_at > _NOTE_SECONDS:
                self._note()

    def _note(self) -> None:
        counts, since = self._read(), self._noted_at
        new = {name: value - self._noted[name] for name, value in counts.items()}
        self._noted, self._noted_at = counts, time.time()
        self._sums.note_counts(new, since)

    def totals(self) -> dict[str, float]:
        """The counts of all processes so far, those of this object included."""
        self.save()
        sums, unsaved = self._sums.read_sums(), self._unsaved()
        return {name: sums[name] + unsaved[name] for name in COUNTERS}

    def abandon(self) -> None:
        """Have somebody else save what is left. For the garbage collector, which may run while this thread holds a lock."""
        counts = self._read()
        unnoted = {name: value - self._noted[name] for name, value in counts.items()}
        _abandoned.append(_Abandoned(self._sums, self._unsaved(), unnoted, self._noted_at))


class _Abandoned(NamedTuple):
    sums: _Sums
    unsaved: dict[str, float]
    unnoted: dict[str, float]
    since: float


_abandoned: deque[_Abandoned] = deque()


def save_abandoned() -> None:
    """Add the counts of caches that were dropped without being closed."""
    with contextlib.suppress(IndexError):
        while True:
            left = _abandoned.popleft()
            left.sums.add_to_sums(left.unsaved)
            left.sums.note_counts(left.unnoted, left.since)


def discard_abandoned() -> None:
    """In a forked child: these counts are the parent's."""
    _abandoned.clear()
