"""The caches that are open in this process: closed when the interpreter ends, and given up in a forked child."""

from __future__ import annotations

import atexit
import contextlib
from typing import Protocol

from ..activity.minutes import every_minute
from ..platforms import system
from ..weak_set import WeakSet
from .lifetime_counts import discard_abandoned, save_abandoned


class _Cache(Protocol):
    def close(self) -> None: ...
    def lose(self) -> None: ...
    def save_counts(self) -> None: ...


_open_caches: WeakSet[_Cache] = WeakSet()


def add_open_cache(cache: _Cache) -> None:
    """Close it when the interpreter ends; in a forked child, call its `lose`."""
    _open_caches.add(cache)


def discard_open_cache(cache: _Cache) -> None:
    """It was closed."""
    _open_caches.discard(cache)


@atexit.register
def _close_all() -> None:
    for cache in list(_open_caches):
        with contextlib.suppress(Exception):
            cache.close()
    save_abandoned()


@every_minute
def _save_counts() -> None:
    for cache in list(_open_caches):
        cache.save_counts()


def _in_child() -> None:
    """The programs, the counts and the threads that save are the parent's."""
    for cache in list(_open_caches):
        cache.lose()
    _open_caches.clear()
    discard_abandoned()


system.on_fork(after_in_child=_in_child)
