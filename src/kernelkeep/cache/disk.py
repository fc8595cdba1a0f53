"""The disk tier: the folder of this GPU, and the bounds and upkeep of the whole cache folder.

A cache problem never breaks the user's program. Reading that fails is a miss. Writing that fails (a read-only, full or
missing file system) leaves the programs in memory, says so once, and is tried again after a while.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..storage.files import Damaged
from ..storage.locks import FileLock, LockUnavailable
from .entry import LARGEST_PAYLOAD, Entry
from .folder import GpuFolder, Stored
from .log import say

__all__ = ["CacheWarning", "DiskTier", "Pruned", "gpu_folders"]

_RETRY_SECONDS = 30.0
_ROOM = 0.9  # pruning by bytes goes on to this share of the bound, so that it is not needed again at once


class CacheWarning(UserWarning):
    """The cache on disk cannot be used as it should; programs stay in memory."""


class Pruned(msgspec.Struct, frozen=True):
    """What pruning removed."""

    entries: int = 0
    bytes: int = 0
    folders: tuple[str, ...] = ()


def gpu_folders(root: Path, only: Collection[str] | None = None) -> list[GpuFolder]:
    """The folders of all GPUs in a cache, or of those named, in order. A folder that merely has a manifest is none.

    One that holds nothing but an OpenGL driver's cache is: a device was opened without a cache of programs.
    """
    with contextlib.suppress(OSError):
        return [
            GpuFolder(path)
            for path in sorted(root.iterdir())
            if (only is None or path.name in only)
            and (
                ((path / "manifest.json").exists() and (path / "programs").is_dir())
                or (path.name.startswith("opengl_") and (path / "driver").is_dir())
            )
        ]
    return []


def room_for_entries(max_bytes: int, driver_bytes: int) -> int:
    """How much of the bound is left for programs: what the drivers' own caches leave, and no less than half.

    A driver's cache that is open cannot be made smaller from outside (it is bounded by the driver, at 256 MiB); programs
    must not all go because of it.
    """
    return max(max_bytes - driver_bytes, max_bytes // 2)


class DiskTier:
    """Entries of one device, and the upkeep of the cache folder they are in."""

    def __init__(self, root: Path, folder: str, fingerprint: dict[str, Any], max_bytes: int) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.folder = GpuFolder(root / folder)
        self.corrupt = 0
        self._lock = threading.Lock()
        self._warned = False
        self._writes_again_at = 0.0
        self._other_bytes = 0  # programs of other devices, as of the last look
        self._driver_bytes = 0  # the drivers' own caches, likewise
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(root)
            self.folder.prepare({"fingerprint": fingerprint})
            self._look_elsewhere()
        except OSError as error:
            self._trouble(error)

    @property
    def writable(self) -> bool:
        """Whether entries are written at the moment."""
        return time.monotonic() >= self._writes_again_at

    # --- entries

    def get(self, digest: str, name: str) -> Entry | None:
        """A verified entry or None; a damaged one is set aside and counted."""
        try:
            return self.folder.read(digest, name)
        except Damaged as damage:
            self.reject(digest, name, str(damage))
        except OSError as error:
            say(name, "cannot be read from disk: %s", error)
        return None

    def put(self, entry: Entry) -> bool:
        """Publish an entry; False where that is not possible now. Keeps the cache folder within its bound."""
        if not self.writable or len(entry.payload) > LARGEST_PAYLOAD:
            return False
        try:
            size = self.folder.write(entry)
        except UnicodeError as error:
            say(repr(entry.facts.name), "cannot be written down: %s", error)
            return False
        except OSError as error:
            self._trouble(error)
            return False
        room = room_for_entries(self.max_bytes, self._driver_bytes)
        if self.folder.count()[1] + self._other_bytes > room or size > room:
            with contextlib.suppress(OSError):
                self.prune(max_bytes=int(self.max_bytes * _ROOM))
        return True

    def reject(self, digest: str, name: str, reason: str) -> None:
        """Set an entry aside that failed its check or that the driver refused."""
        with self._lock:
            self.corrupt += 1
        say(name, "the entry on disk is set aside: %s", reason)
        with contextlib.suppress(OSError):
            self.folder.set_aside(digest, name)

    def scan(self) -> Iterator[Stored]:
        """Every entry of this device."""
        return self.folder.scan()

    def find_name(self, name: str) -> list[str]:
        """The keys of the entries saved under a name."""
        return self.folder.find_name(name)

    @contextlib.contextmanager
    def alone(self, digest: str, timeout_seconds: float, name: str = "") -> Iterator[bool]:
        """Keep other processes from compiling the same key during the block. False: no lock could be had, go on anyway."""
        lock: FileLock = self.folder.lock(digest)
        try:
            lock.acquire(timeout_seconds)
        except LockUnavailable as error:
            say(name or digest[:12], "going on without a lock: %s", error)
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    # --- upkeep

    def count(self) -> tuple[int, int]:
        """Entries and bytes of this device, the driver's own cache included."""
        entries, size = self.folder.count()
        return entries, size + self.folder.driver_bytes()

    def prune(
        self,
        max_age_days: float | None = None,
        max_bytes: int | None = None,
        gone: Callable[[GpuFolder], bool] | None = None,
    ) -> Pruned:
        """Remove folders that `gone` names, entries not used for `max_age_days`, and the oldest down to `max_bytes`."""
        from .upkeep import prune_root  # rarely needed, and start-up counts

        try:
            pruned = prune_root(self.root, max_age_days, max_bytes, gone, in_use=self.folder.path)
            self._look_elsewhere()
        except OSError as error:
            self._trouble(error)
            return Pruned()
        return pruned

    def _look_elsewhere(self) -> None:
        folders = gpu_folders(self.root)
        self._other_bytes = sum(folder.count()[1] for folder in folders if folder.path != self.folder.path)
        self._driver_bytes = sum(folder.driver_bytes() for folder in folders)

    def _trouble(self, error: OSError) -> None:
        """Stop writing for a while, and say so once."""
        with self._lock:
            self._writes_again_at = time.monotonic() + _RETRY_SECONDS
            first, self._warned = not self._warned, True
        if first:
            reason = error.strerror or str(error)
            text = f"programs cannot be kept in {self.root} ({reason}); they are kept in memory only"
            say(self.folder.path.name, "%s", text)
            with contextlib.suppress(Warning):  # where warnings are errors, this one still breaks nothing
                warnings.warn(text, CacheWarning, stacklevel=2)


def _check_private(root: Path) -> None:
    """A folder that others may write to could hold anybody's programs."""
    found = root.stat()
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        if found.st_uid != os.getuid():
            raise PermissionError(1, "others may write to it and it is not yours")
        root.chmod(0o700)
