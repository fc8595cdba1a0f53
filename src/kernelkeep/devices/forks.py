"""Forks: no driver survives `os.fork()`.

A driver's threads stay in the parent, and a lock that one of them held stays locked in the child, so a driver call in the
child may block for ever. Therefore a child never calls a driver that was loaded before the fork: using the parent's devices
or opening another one with that driver is a `DeviceError` that says what to do instead. A driver that was not loaded before
the fork works in the child as usual.

Nothing here takes a lock: a thread that does not exist in the child may hold it. Nor does anything here look for a library:
where a thread of the parent is loading one at the moment of the fork, as PoCL's do, the C library ends a child that asks.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import DeviceError
from ..platforms import system
from ..weak_set import WeakSet

if TYPE_CHECKING:
    from .base import Device

advice = "use multiprocessing.get_context('spawn'), or open devices in the child only"

_loaded: set[str] = set()  # backends whose driver this process has loaded
_lost: set[str] = set()  # backends whose driver was loaded before this process was forked
_devices: WeakSet[Device] = WeakSet()
_silencers: list[Callable[[], None]] = []
_end_without_drivers: Callable[[], None] | None = None


def check_driver(backend: str) -> None:
    """Raise `DeviceError` if the backend's driver was loaded before this process was forked."""
    if backend in _lost:
        raise DeviceError(
            f"the {backend} driver cannot be used here: this process was forked from one that had loaded it, and no driver "
            f"survives a fork; {advice}"
        )


def before_driver(backend: str) -> None:
    """Call this before the driver is loaded; raises like `check_driver`."""
    global _end_without_drivers
    check_driver(backend)
    _loaded.add(backend)
    if _end_without_drivers is None:
        _end_without_drivers = _find_exit_handlers()


def no_driver(backend: str) -> None:
    """Call this if the driver turned out to be missing: a child loses nothing."""
    _loaded.discard(backend)


def watch(device: Device) -> None:
    """Have `device.mark_lost(…)` called in a forked child."""
    _devices.add(device)


def keep_driver_quiet(silence: Callable[[], None]) -> None:
    """Have `silence` called first in a forked child, so that collected objects of the driver do not call it there."""
    _silencers.append(silence)


def _in_child() -> None:
    if not _loaded:
        return
    _lost.update(_loaded)
    _loaded.clear()
    for silence in _silencers:
        with contextlib.suppress(Exception):
            silence()
    for device in list(_devices):
        device.mark_lost(
            f"device {device.spec} was opened before this process was forked, and no driver survives a fork; {advice}"
        )
    if _end_without_drivers is not None:
        _end_without_drivers()


def _find_exit_handlers() -> Callable[[], None] | None:
    """What has the C library skip the exit handlers that drivers registered: they would wait for the driver's threads.

    Exit handlers run in reverse order, so those that the child registers later still run.
    """
    if not system.HAS_FORKS:
        return None
    try:
        c = ctypes.CDLL(None)
        on_exit, leave, close_files = c.on_exit, c._exit, c.fcloseall
    except (AttributeError, OSError):  # not every C library has `on_exit`
        return None

    def register() -> None:
        on_exit(leave, None)  # called with the exit status
        on_exit(close_files, None)  # what the C library would have done at the end

    return register


system.on_fork(after_in_child=_in_child)
