"""Threads that hand the interpreter over soon, for a moment.

A driver call lets go of the interpreter's lock. A thread that then computes keeps the lock for its whole turn, 5 ms, so a few
driver calls in a row take tens of milliseconds beside busy threads: far longer than the grid needs to be launched again.

A collection of garbage takes milliseconds, and can begin at any moment. It waits until the end.

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
_collected = False  # whether garbage was collected automatically


@contextmanager
def quick_switches() -> Iterator[None]:
    """For a block in which a thread's turn is short. It is the whole process's setting; several threads may be in one."""
    global _inside, _before, _collected
    with _lock:
        if not _inside:
            _before, _collected = sys.getswitchinterval(), gc.isenabled()
            sys.setswitchinterval(min(_SECONDS, _before))
            gc.disable()
        _inside += 1
    try:
        with system.woken_on_time():
            yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                sys.setswitchinterval(_before)
                if _collected:
                    gc.enable()
