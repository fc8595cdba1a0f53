"""The module in C for the hot path, where it was built."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from .. import settings


def _native() -> Any:
    """The module; None where it was not built or is not to be used."""
    if not settings.native():
        return None
    try:
        from .. import _leases
    except ImportError:
        return None
    return _leases if hasattr(_leases.Counter, "next") else None  # else it was built from an older file


NATIVE = _native()


def _plain_counter() -> Callable[[], int]:
    return itertools.count().__next__


# Makes something that returns 0, 1, 2, … when it is called, each number once, whatever the threads do.
new_counter: Callable[[], Callable[[], int]] = _plain_counter if NATIVE is None else NATIVE.Counter


class PlainTally:
    """The twin of `Tally`."""

    __slots__ = ("_lock", "_times")

    def __init__(self) -> None:
        self._times = 0
        self._lock = threading.RLock()  # a signal's handler may count while its own thread does

    def add(self) -> None:
        """Add one."""
        with self._lock:
            self._times += 1  # nothing is called in between, so no handler runs there

    def read(self) -> int:
        """How often it was added to."""
        return self._times


class _TallyInC:
    """A count. To look takes no lock."""

    __slots__ = ("add",)

    def __init__(self) -> None:
        self.add: Any = NATIVE.Counter()

    def read(self) -> int:
        """How often it was added to."""
        return int(self.add.next)


Tally: Any = PlainTally if NATIVE is None else _TallyInC
