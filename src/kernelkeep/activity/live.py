"""What is open in this process now: caches, executors, runs, residents, and work such as a preload.

    live.add("cache", cache, ProgramCache.live_facts)       # held weakly
    live.remove(cache)                                      # its counts are kept
    live.snapshot()                                         # all of it, as plain data

Nothing here asks a device. The functions that give facts take no lock that is held while something is waited for, so a snapshot
is there within a millisecond whatever the program does. The first object that is added starts a thread, which half a second
later listens for `kernelkeep top` (`live_server.py`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from .. import __version__, settings
from ..platforms import system
from . import minutes
from .facts import Facts, Sums

T = TypeVar("T")

_FORGET_EVERY = 256  # objects that were added
_LISTEN_AFTER_SECONDS = 0.5  # a process that ends before pays for the start of a thread, and nothing else


class _Opened:
    __slots__ = ("facts", "kind", "number", "owner", "since")

    def __init__(self, kind: str, owner: Any, facts: Callable[[Any], Facts]) -> None:
        self.number = next(_numbers)
        self.kind = kind
        self.owner = weakref.ref(owner)
        self.facts = facts
        self.since = time.monotonic()


_opened: dict[int, _Opened] = {}  # by the owner's identity
_closed = Sums()
_numbers = itertools.count(1)
_began = time.time()
# Held for a few dict operations. Re-entrant: the garbage collector may close an object while this thread adds another.
_lock = threading.RLock()
_thread: threading.Thread | None = None
# Held while the thread imports what it needs. Who forks waits for that: a child could never import a module that a thread, which
# does not exist there, is importing.
_importing = threading.RLock()
_IMPORT_SECONDS = 1.0


def add(kind: str, owner: T, facts: Callable[[T], Facts]) -> None:
    """Show `owner` from now on, until it is removed or collected. `facts(owner)` must not wait for anything."""
    made = _Opened(kind, owner, facts)
    with _lock:
        _opened[id(owner)] = made
    if _thread is None:
        _start_thread()
    if made.number % _FORGET_EVERY == 0:
        _forget_collected()


def remove(owner: object) -> None:
    """It is closed, or is being collected: keep its counts. Doing it twice is fine."""
    found = _opened.get(id(owner))
    # In `__del__` the reference may be dead already, and the object is not.
    if found is None or found.owner() not in (owner, None):
        return
    try:
        facts = found.facts(owner)
    except Exception:  # half made, or half gone
        facts = Facts()
    with _lock:
        if _opened.pop(id(owner), None) is not None:
            _closed.add(found.kind, facts)


def _forget_collected() -> None:
    """Without a callback of the reference: that comes before `__del__`, which removes the object and keeps its counts."""
    with _lock:
        for identity in [identity for identity, one in _opened.items() if one.owner() is None]:
            del _opened[identity]


def snapshot() -> dict[str, Any]:
    """What is open now, and the counts of what was closed, as JSON can hold it."""
    from .program_name import program_name  # only who is watched needs it

    with _lock:
        # Held from here on: one that is closed and collected meanwhile would be counted neither as open nor as closed.
        opened = [(one, one.owner()) for one in _opened.values()]
        closed = _closed.read()
    now = time.monotonic()
    return {
        "schema": 1,
        "time": time.time(),
        "process": {
            "pid": os.getpid(),
            "program": program_name(),
            "host": system.host_name(),
            "started": _began,
            "interpreter": sys.version.split()[0],
            "kernelkeep": __version__,
        },
        "open": [shown for one, owner in opened if (shown := _shown(one, owner, now)) is not None],
        "closed": closed,
    }


def _shown(one: _Opened, owner: Any, now: float) -> dict[str, Any] | None:
    if owner is None:
        return None
    try:
        facts = one.facts(owner)
    except Exception:  # it is being made or closed this very moment
        return None
    return {
        "id": one.number,
        "kind": one.kind,
        "seconds": max(0.0, now - one.since),
        "about": facts.about,
        "counts": facts.counts,
        "now": facts.now,
        "histograms": facts.histograms,
    }


class Work:
    """A call that takes long, such as a preload: how many of its parts are done."""

    def __init__(self, name: str, device: str, total: int | None) -> None:
        self.name, self.device, self.total = name, device, total
        self.last = ""
        self._done = itertools.count()
        self._seen = 0

    def step(self, text: str = "") -> None:
        """One more part is done; `text` names it."""
        self.last = text
        self._seen = next(self._done) + 1

    def facts(self) -> Facts:
        """What it says of itself."""
        about = {"device": self.device, "name": self.name}
        return Facts(about, {"steps": self._seen}, {"done": self._seen, "total": self.total, "last": self.last})


@contextlib.contextmanager
def work(kind: str, name: str, device: str, total: int | None = None) -> Iterator[Work]:
    """Show a call that takes long, for the block. `kind`: "preload" or "tuning"."""
    made = Work(name, device, total)
    add(kind, made, Work.facts)
    try:
        yield made
    finally:
        remove(made)


# --- the thread that listens


def _start_thread() -> None:
    global _thread
    with _lock:
        if _thread is not None or not settings.live():
            return
        _thread = threading.Thread(target=_listen, name="kernelkeep-live", daemon=True)
        with contextlib.suppress(RuntimeError):  # the interpreter is ending, or the system has no more threads
            _thread.start()


def _listen() -> None:
    time.sleep(_LISTEN_AFTER_SECONDS)
    minutes.start()
    with contextlib.suppress(Exception):  # nobody can watch this process then; nothing else changes
        with _importing:
            from .live_server import listen, serve

            listener = listen()
        serve(listener, snapshot)


def _before_fork() -> None:
    _importing.acquire(timeout=_IMPORT_SECONDS)


def _in_parent() -> None:
    with contextlib.suppress(RuntimeError):  # it was not to be had in time
        _importing.release()


def _in_child() -> None:
    """What is open, and the thread, are the parent's."""
    global _lock, _importing, _thread, _closed, _began
    _lock, _importing, _thread, _closed, _began = threading.RLock(), threading.RLock(), None, Sums(), time.time()
    _opened.clear()


system.on_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
