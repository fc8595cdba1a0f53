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
from collections.abc import Iterator
from contextlib import contextmanager

from ..platforms import system

_SECONDS = 20e-6
_lock = threading.Lock()
_inside = 0
_before = 0.0


@contextmanager
def quick_switches() -> Iterator[None]:
    """For a block in which a thread's turn is short. It is the whole process's setting; several threads may be in one."""
    global _inside, _before
    with _lock:
        if not _inside:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(_SECONDS, _before))
        _inside += 1
    try:
        with system.woken_on_time():
            yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                sys.setswitchinterval(_before)


@contextmanager
def no_collections() -> Iterator[None]:
    """For a short block in which Python does not begin to collect garbage, which takes milliseconds."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
