"""Something done once a minute, in a thread that begins when a process has lived for a while or has compiled.

So a process that runs for days appears in the diary while it runs, and one that ends soon pays for no thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from .. import settings
from ..platforms import system

_SECONDS = 60.0
_calls: list[Callable[[], None]] = []
_lock = threading.Lock()
_thread: threading.Thread | None = None
_wake = threading.Event()


def every_minute(call: Callable[[], None]) -> Callable[[], None]:
    """Call it once a minute, once `start` was called. What it raises is dropped."""
    _calls.append(call)
    return call


def start() -> None:
    """Begin, unless that was done before, or no diary is kept."""
    global _thread
    if _thread is not None or not settings.keeps_diary():
        return
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_go_on, name="kernelkeep-diary", daemon=True)
            with contextlib.suppress(RuntimeError):  # the interpreter is ending, or the system has no more threads
                _thread.start()


def wake() -> None:
    """Do it now, in the thread. For tests, and for who cannot wait."""
    _wake.set()


def _go_on() -> None:
    while True:
        _wake.wait(_SECONDS)
        _wake.clear()
        for call in list(_calls):
            with contextlib.suppress(Exception):
                call()


def _in_child() -> None:
    """The thread is the parent's."""
    global _lock, _thread, _wake
    _lock, _thread, _wake = threading.Lock(), None, threading.Event()


system.on_fork(after_in_child=_in_child)
