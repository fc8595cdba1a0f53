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
    return _leases


NATIVE = _native()


def _plain_counter() -> Callable[[], int]:
    return itertools.count().__next__


# Makes something that returns 0, 1, 2, … when it is called, each number once, whatever the threads do.
new_counter: Callable[[], Callable[[], int]] = _plain_counter if NATIVE is None else NATIVE.Counter


class Tally:
    """A count that takes no lock to add to: `add()` adds one."""

    __slots__ = ("_lock", "_looks", "add")

    def __init__(self) -> None:
        self.add = new_counter()
        self._looks = 0
        self._lock = threading.Lock()

    def read(self) -> int:
        """How often it was added to."""
        with self._lock:  # to look is to count
            self._looks += 1
            return self.add() + 1 - self._looks
