"""Threads that hand the interpreter over soon, for a moment.

A driver call lets go of the interpreter's lock. A thread that then computes keeps the lock for its whole turn, 5 ms, so a few
driver calls in a row take tens of milliseconds beside busy threads: far longer than the grid needs to be launched again.

The system wakes a thread up to 50 µs late, to wake several at once. Whoever waits for the lock, or for the grid's end, is woken
on time here.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..platforms import system

_SECONDS = 20e-6


class _Changed:
    """A setting of the whole process that is changed while threads are in a block, several perhaps.

    `note` returns what sets it back. It is kept before the change, and called before the last thread counts as outside: so a
    child that is forked in between knows that there is something to set back.
    """

    def __init__(self, note: Callable[[], Callable[[], None]], change: Callable[[], None]) -> None:
        self._note, self._change = note, change
        self._lock = threading.Lock()
        self._inside = 0
        self._set_back: Callable[[], None] = lambda: None
        system.on_fork(after_in_child=self._in_child)

    def __enter__(self) -> None:
        entered = False
        try:
            with self._lock:
                if not self._inside:
                    self._set_back = self._note()
                self._inside += 1
                entered = True
                if self._inside == 1:
                    self._change()
        except BaseException:
            if entered:  # Ctrl-C: nobody leaves a block that was not entered
                self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            if self._inside == 1:
                self._set_back()
            self._inside = max(0, self._inside - 1)  # 0 before: in the child of a thread that forked inside

    def _in_child(self) -> None:
        """The threads that were inside do not exist here, and one may have held the lock."""
        self._lock = threading.Lock()
        if self._inside:
            self._inside = 0
            self._set_back()


def _note_interval() -> Callable[[], None]:
    before = sys.getswitchinterval()
    return lambda: sys.setswitchinterval(before)


def _shorten_interval() -> None:
    sys.setswitchinterval(min(_SECONDS, sys.getswitchinterval()))


def _note_collecting() -> Callable[[], None]:
    return gc.enable if gc.isenabled() else lambda: None


_short_turns = _Changed(_note_interval, _shorten_interval)
_not_collecting = _Changed(_note_collecting, gc.disable)


@contextmanager
def quick_switches() -> Iterator[None]:
    """For a block in which a thread's turn is short. It is the whole process's setting; several threads may be in one."""
    with _short_turns, system.woken_on_time():
        yield


@contextmanager
def no_collections() -> Iterator[None]:
    """For a short block in which Python does not begin to collect garbage, which takes milliseconds."""
    with _not_collecting:
        yield
