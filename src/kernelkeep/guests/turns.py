"""The turns of this process to compile for a guest, from a miss until what was compiled is put.

The doors of guests have no lock: they ask for bytes, compile, and hand bytes over. So a miss takes the turn, and whoever asks
for the same meanwhile, in this process or another, waits until the bytes are there, or until the time for that is over.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import NamedTuple


class _Turn(NamedTuple):
    thread: int
    locks: contextlib.ExitStack


class Turns:
    """Safe under threads."""

    def __init__(self, longest_seconds: float) -> None:
        self._longest_seconds = longest_seconds
        self._changed = threading.Condition()
        self._held: dict[str, _Turn | None] = {}  # None: a thread waits for the locks

    def take(self, digest: str, lock: Callable[[contextlib.ExitStack], bool]) -> bool:
        """Take the turn, unless it is this thread's already. False: look again, another thread's turn has just ended.

        `lock` takes the locks between processes, and says whether there is still something to compile.
        """
        deadline = time.monotonic() + self._longest_seconds
        with self._changed:
            while digest in self._held:
                turn = self._held[digest]
                if turn is not None and turn.thread == threading.get_ident():
                    return True  # it asks again
                if not self._changed.wait(deadline - time.monotonic()):
                    return True  # it compiles for itself
                if digest not in self._held:
                    return False
            self._held[digest] = None
        locks = contextlib.ExitStack()
        needed = False
        try:
            needed = lock(locks)
        finally:
            with self._changed:
                if needed:
                    self._held[digest] = _Turn(threading.get_ident(), locks)
                else:
                    del self._held[digest]
                    self._changed.notify_all()
            if not needed:
                locks.close()
        return needed

    def end(self, digest: str) -> None:
        """The bytes were put, or will not be."""
        with self._changed:
            turn = self._held.get(digest)
            if turn is None:
                return
            del self._held[digest]
            self._changed.notify_all()
        turn.locks.close()

    def end_all(self) -> None:
        """No bytes will be put any more."""
        for digest in list(self._held):
            self.end(digest)
