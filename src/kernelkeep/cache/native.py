"""The module in C for the hot path, where it was built."""

from __future__ import annotations

import threading
from typing import Any, Protocol

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


class Counter(Protocol):
    """Returns 0, 1, 2, … when it is called, each number once, whatever the threads do."""

    @property
    def next(self) -> int:
        """What the next call returns. To look takes no lock."""

    def __call__(self) -> int: ...


class PlainCounter:
    """The twin of the counter in C. `itertools.count` is no substitute: without the interpreter's lock it may repeat a number."""

    __slots__ = ("_lock", "next")

    def __init__(self) -> None:
        self.next = 0
        self._lock = threading.RLock()  # a signal's handler may count while its own thread does

    def __call__(self) -> int:
        with self._lock:
            number = self.next
            self.next = number + 1  # nothing is called in between, so no handler runs there
            return number


new_counter: type[Counter] = PlainCounter if NATIVE is None else NATIVE.Counter


class Tally:
    """A count: `add()` adds one."""

    __slots__ = ("add",)

    def __init__(self) -> None:
        self.add = new_counter()

    def read(self) -> int:
        """How often it was added to."""
        return self.add.next
