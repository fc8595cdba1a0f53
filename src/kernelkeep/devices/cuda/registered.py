"""Host arrays that come again and again: page-locked where they are, so that the device copies from them directly.

Copying an array into a page-locked block takes several cores, and longer than the device takes to fetch it. Page-locking takes
about as long as a few such copies, so only an array that was seen a few times is page-locked. It is held as long: memory that is
freed and mapped again would be other memory, and the device would still see the old one.

Only arrays that own their memory are: not those on a file, on shared memory or on what another library allocated. What somebody
else has page-locked the driver refuses, and it is copied as before.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ...platforms import system
from .pinned import PinnedMemory

if TYPE_CHECKING:
    from .device import CudaDevice

Host = np.ndarray[Any, Any]

_LEAST_BYTES = 1 << 20
_SIGHTINGS = 3  # before an array is page-locked
_MOST_BYTES = 1 << 30  # page-locked at a time
_ARRAYS_KNOWN = 256
_LOOK_EVERY = 64  # questions, for arrays that are not used any more
_IDLE_SECONDS = 10.0

_forks = 0  # of this process


def _note_fork() -> None:
    global _forks
    _forks += 1


system.on_fork(after_in_parent=_note_fork)


class _Held:
    """An array that is page-locked."""

    __slots__ = ("address", "nbytes", "owner", "used")

    def __init__(self, owner: Host) -> None:
        self.owner = owner
        self.address, self.nbytes = _address(owner), owner.nbytes
        self.used = time.monotonic()

    @property
    def is_whole(self) -> bool:
        """Whether the array still has this memory: `resize(refcheck=False)` gives it another."""
        return _address(self.owner) == self.address and self.owner.nbytes == self.nbytes


class RegisteredArrays:
    """The caller's arrays that are page-locked, for all executors of a device. Safe under threads."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._held: dict[int, _Held] = {}  # by the identity of the array that owns the memory
        self._seen: dict[int, tuple[weakref.ref[Host], int]] = {}
        self._bytes = 0
        self._questions = 0
        self._users = 0
        self._forks = _forks
        self._lock = threading.Lock()

    def open(self) -> None:
        """An executor uses them; `close` follows."""
        with self._lock:
            self._users += 1

    def has(self, host: Host, *, page_lock: bool) -> bool:
        """Whether the device copies from this array directly. With `page_lock` one that was asked for a few times is made so."""
        if host.nbytes < _LEAST_BYTES:
            return False
        owner = _owner(host)
        if owner is None:
            return False
        if isinstance(owner, PinnedMemory):
            return True
        if not page_lock:
            return False
        with self._lock:
            self._questions += 1
            if self._forks != _forks:
                # Older systems give the parent other pages where it writes after a fork: they are page-locked anew.
                self._forks = _forks
                for key in list(self._held):
                    self._drop(key)
            elif self._questions % _LOOK_EVERY == 0:
                self._drop_unused()
            held = self._held.get(id(owner))
            if held is not None and held.is_whole:
                held.used = time.monotonic()
                return True
            if held is not None:
                self._drop(id(owner))
            return self._seen_often(owner) and self._register(owner)

    def _seen_often(self, owner: Host) -> bool:
        known, count = self._seen.pop(id(owner), (None, 0))
        if known is None or known() is not owner:
            known, count = weakref.ref(owner), 0
        while len(self._seen) >= _ARRAYS_KNOWN:
            del self._seen[next(iter(self._seen))]
        self._seen[id(owner)] = known, count + 1
        return count + 1 >= _SIGHTINGS

    def _register(self, owner: Host) -> bool:
        device, driver = self._device, self._device.driver
        key, held, status = id(owner), None, None
        if not device.discarded.begin():  # a kernel that never exits runs: the call may wait for it
            return False
        try:
            self._drop_unused()
            if self._bytes + owner.nbytes > _MOST_BYTES:
                return False
            with device.current:
                device.discarded.clear()
                held = _Held(owner)
                # Before the call: Ctrl-C may come when the driver has page-locked it.
                self._held[key] = held
                self._bytes += held.nbytes
                (status,) = driver.cuMemHostRegister(held.address, held.nbytes, driver.CU_MEMHOSTREGISTER_PORTABLE)
        except BaseException:
            if held is not None and self._held.get(key) is held:
                if status is None or status is device.success:
                    self._drop(key)  # where the call was not made, the driver refuses to undo it
                else:
                    self._leave_out(key)
            raise
        finally:
            device.discarded.end()
        if status is not device.success:
            # Somebody has page-locked it or a neighbour on the same page; or the system refuses more.
            self._leave_out(key)
            self._seen[key] = weakref.ref(owner), -sys.maxsize
            return False
        del self._seen[key]
        return True

    def _drop_unused(self) -> None:
        """Drop what nobody else has any more, and what did not come for a while."""
        before = time.monotonic() - _IDLE_SECONDS
        for key, held in list(self._held.items()):
            if held.used < before or sys.getrefcount(held.owner) <= _ONLY_HELD:
                self._drop(key)

    def _drop(self, key: int) -> None:
        self._device.discarded.add(_unregister, self._device.driver, self._leave_out(key))

    def _leave_out(self, key: int) -> _Held:
        held = self._held.pop(key)
        self._bytes -= held.nbytes
        return held

    def close(self) -> None:
        """An executor uses them no more: drop what nobody else has, and with the last executor all of them."""
        if self._device.lost:
            return
        with self._lock:
            self._users -= 1
            if self._users:
                self._drop_unused()
            else:
                for key in list(self._held):
                    self._drop(key)
        with self._device.current:
            self._device.discarded.clear()


def _owner(host: Host) -> Any:
    """The array that owns the memory, or the page-locked memory; None where somebody else owns it."""
    base = host.base
    while base.__class__ is np.ndarray:
        host, base = base, base.base
    if base is None:
        return host if host.flags.owndata else None
    return base if isinstance(base, PinnedMemory) else None


def _address(host: Host) -> int:
    return int(host.__array_interface__["data"][0])


def _unregister(driver: Any, held: _Held) -> None:
    driver.cuMemHostUnregister(held.address)


_probe = _Held(np.empty(0))
_ONLY_HELD = sys.getrefcount(_probe.owner)  # what is counted for an array that is in a dictionary and nowhere else
