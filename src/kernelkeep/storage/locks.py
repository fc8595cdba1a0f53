"""A lock between processes: a locked file.

The operating system releases the lock when its holder dies. Releasing it removes the file. A waiter that gets the lock of a
removed file notices that the path leads to another file or none, and starts again. Where an open file cannot be removed, it
stays until the last waiter closes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..platforms import system
from .files import Damaged, create_folder, open_regular

_OPEN = os.O_RDWR | os.O_CREAT | system.OPEN_FLAGS | system.NO_LINKS | system.NO_WAITING
_PRIVATE_FILE = 0o600
_LONGEST_NOTE = 1000
_TRIES = 10  # to make the folder, while somebody else removes it


class LockUnavailable(Exception):
    """The file system has no locks, or the time is up. The caller does without the lock."""


class LockHeld(LockUnavailable):
    """Somebody else still holds the lock after the time to wait for it."""


# Open files of the locks this process holds. A forked child inherits them and must close its copies, or it would keep the
# lock of a killed parent.
_held: set[int] = set()


def _close_inherited() -> None:
    for descriptor in _held:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


system.on_fork(after_in_child=_close_inherited)


class FileLock:
    """A lock between processes, and between threads that use different `FileLock` objects."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def acquire(self, timeout_seconds: float) -> None:
        """Wait for the lock; `LockUnavailable` when it cannot be had."""
        deadline = time.monotonic() + timeout_seconds
        pause = 0.0005
        while True:
            try:
                if self._try():
                    return
            except OSError as error:
                raise LockUnavailable(f"{self.path}: {error.strerror}") from None
            if time.monotonic() >= deadline:
                raise LockHeld(f"{self.path} is still held after {timeout_seconds:g} s")
            time.sleep(pause)
            pause = min(pause * 2, 0.02)

    def _try(self) -> bool:
        descriptor = _open(self.path)
        _held.add(descriptor)
        try:
            if system.lock(descriptor) and _is_current(self.path, descriptor):
                self._descriptor = descriptor
                return True
        except OSError:
            self._close(descriptor)
            raise
        self._close(descriptor)
        return False

    def leave_note(self, text: str) -> None:
        """Write a text into the lock's file for others to read with `note`. This object must hold the lock."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, 0)
                system.write_at(self._descriptor, text.encode(), 0)

    def note(self) -> str:
        """The text that the holder of the lock wrote; empty if none."""
        try:
            with open_regular(self.path, follow_links=False) as file:
                return file.read(_LONGEST_NOTE).decode(errors="replace")
        except (OSError, Damaged):
            return ""

    def release(self) -> None:
        """Release the lock and remove its file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None and descriptor in _held:  # it is the parent's in a process forked meanwhile
            if not system.REMOVES_OPEN_FILES:
                self._close(descriptor)
            with contextlib.suppress(OSError):
                self.path.unlink()
            if system.REMOVES_OPEN_FILES:
                self._close(descriptor)

    @staticmethod
    def _close(descriptor: int) -> None:
        _held.discard(descriptor)
        with contextlib.suppress(OSError):
            system.unlock_and_close(descriptor)

    @contextlib.contextmanager
    def held(self, timeout_seconds: float) -> Iterator[None]:
        """Hold the lock during a block."""
        self.acquire(timeout_seconds)
        try:
            yield
        finally:
            self.release()


def hold_for_life(path: Path, timeout_seconds: float = 5.0) -> Callable[[], None]:
    """Take a shared lock until this process ends or the returned function is called. Others may share it.

    `LockUnavailable` if it cannot be had.
    """
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        try:
            descriptor = _open(path)
        except FileNotFoundError:  # somebody keeps removing the folder
            continue
        except OSError as error:
            raise LockUnavailable(f"{path}: {error.strerror}") from None
        try:
            if not system.lock(descriptor, shared=True):  # somebody is about to remove it
                os.close(descriptor)
                time.sleep(0.001)
            elif _is_current(path, descriptor):
                _held.add(descriptor)
                return lambda: _let_go(descriptor)
            else:
                system.unlock_and_close(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise LockUnavailable(f"{path}: {error.strerror}") from None
    raise LockHeld(f"{path} is still held")


def _let_go(descriptor: int) -> None:
    if descriptor in _held:  # it is the parent's in a process forked meanwhile
        FileLock._close(descriptor)


@contextlib.contextmanager
def unless_held(path: Path) -> Iterator[bool]:
    """Yields whether nobody holds the lock; then nobody can take it during the block. True where there are no locks."""
    lock = FileLock(path)
    try:
        lock.acquire(0)
    except LockHeld:
        yield False
        return
    except LockUnavailable:
        pass
    try:
        yield True
    finally:
        lock.release()


def _open(path: Path) -> int:
    for tries in range(_TRIES):
        try:
            descriptor = system.open_file(path, _OPEN, _PRIVATE_FILE)
            break
        except FileNotFoundError:
            if tries == _TRIES - 1:
                raise
            create_folder(path.parent)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "is not a regular file")
        if found.st_nlink > 1:  # a link to another file of ours, which must not be overwritten with the note
            raise OSError(errno.EMLINK, "has other names too")
        if stat.S_IMODE(found.st_mode) != _PRIVATE_FILE and found.st_uid == system.user_number():
            system.set_mode(descriptor, _PRIVATE_FILE)  # whatever the umask is
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_current(path: Path, descriptor: int) -> bool:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    mine = os.fstat(descriptor)
    return (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev)
