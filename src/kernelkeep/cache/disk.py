"""The disk tier: the folder of this GPU, and the bounds and upkeep of the whole cache folder.

A cache problem never breaks the user's program. Reading that fails is a miss. Writing that fails (a read-only, full or
missing file system) leaves the programs in memory, says so once, and is tried again after a while. So does a folder that
another user could have written to: nothing is read from it, because what a cache holds is executed.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..errors import CacheWarning
from ..escaping import escaped
from ..storage.files import Damaged, Untrusted
from ..storage.locks import FileLock, LockUnavailable
from ..storage.private import NotPrivate, Trust, default_trust, make_private_folder
from .entry import LARGEST_PAYLOAD, Entry
from .folder import GpuFolder, Stored
from .log import log
from .stats import COUNTERS, add_to_file, read_file

__all__ = ["DiskTier", "Pruned", "gpu_folders"]

_RETRY_SECONDS = 30.0
_TRIES = 10  # at writing, while other processes clear the folder
_ROOM = 0.9  # pruning by bytes goes on to this share of the bound, so that it is not needed again at once


class Pruned(msgspec.Struct, frozen=True):
    """What was removed; `left` has a path and a reason for each file that could not be.

    `in_use` names the folders whose driver's own files stay, because a running process works with them.
    """

    entries: int = 0
    bytes: int = 0
    folders: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    in_use: tuple[str, ...] = ()


def gpu_folders(root: Path, only: Collection[str] | None = None, trust: Trust | None = None) -> list[GpuFolder]:
    """The folders of all GPUs in a cache, or of those named, in order. Folders that are not the cache's are left out.

    So are those that another user could have written to. Whether the cache folder itself is private was checked before.
    """
    trust = trust or default_trust()
    try:
        names = sorted(path.name for path in root.iterdir())
    except (OSError, ValueError):
        return []
    found = []
    for name in names:
        if only is None or name in only:
            folder = GpuFolder(root / name, trust)
            with contextlib.suppress(OSError):
                folder.check_private()
                if folder.path.is_dir() and folder.is_ours():
                    found.append(folder)
    return found


def room_for_entries(max_bytes: int, driver_bytes: int) -> int:
    """How much of the bound is left for programs: what the drivers' own caches leave, and no less than half.

    A driver's cache that is open cannot be made smaller from outside (it is bounded by the driver, at 256 MiB); programs
    must not all go because of it.
    """
    return max(max_bytes - driver_bytes, max_bytes // 2)


class DiskTier:
    """Entries of one device, and the upkeep of the cache folder they are in."""

    def __init__(
        self, root: Path, folder: str, fingerprint: dict[str, Any], max_bytes: int, trust: Trust | None = None
    ) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.trust = trust or default_trust()
        self.folder = GpuFolder(root / folder, self.trust)
        self.corrupt = 0
        self._facts = {"fingerprint": fingerprint}
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self._root_usable = False  # whether the way down to the cache folder was checked, and found private
        self._usable = False  # whether that to this GPU's folder was
        self._again_at = 0.0  # when to try again, after trouble
        self._other_bytes = 0  # programs of other devices, as of the last look
        self._driver_bytes = 0  # the drivers' own caches, likewise
        self._open()

    def _open(self) -> None:
        """Check the way to the folder, and make the folder ready."""
        for tries in range(1, _TRIES + 1):
            try:
                make_private_folder(self.root, self.trust)
                self._root_usable = True
                self._check_folder()
                self._usable = True
                self.folder.prepare(self._facts)
                self._look_elsewhere()
                return
            except OSError as error:
                if tries == _TRIES or not isinstance(error, FileNotFoundError):  # that is somebody who clears it
                    self._trouble(error)
                    return

    def _check_folder(self) -> None:
        make_private_folder(self.folder.path, self.trust)
        self.folder.check_private()

    @property
    def writable(self) -> bool:
        """Whether entries are written at the moment."""
        return time.monotonic() >= self._again_at

    @property
    def usable(self) -> bool:
        """Whether entries may be read; a folder that was refused is looked at again after a while."""
        if not self._usable and self.writable:
            self._open()
        return self._usable

    # --- entries

    def get(self, digest: str, name: str) -> Entry | None:
        """A verified entry or None; a damaged one is set aside and counted."""
        if not (self._usable or self.usable):
            return None
        try:
            return self.folder.read(digest, name)
        except Damaged as damage:
            if isinstance(damage, Untrusted):
                self._warn(
                    "entry", f"{name} is not read from {self.root} and set aside: {damage}; it is compiled again"
                )
            self.reject(digest, name, str(damage))
        except NotPrivate as error:
            self._trouble(error)
        except OSError as error:
            log(name, "cannot be read from disk: %s", error)
        return None

    def put(self, entry: Entry) -> bool:
        """Publish an entry; False where that is not possible now. Keeps the cache folder within its bound."""
        if not self.writable or not self.usable or len(entry.payload) > LARGEST_PAYLOAD:
            return False
        try:
            size = self._write(entry)
        except FileNotFoundError as error:
            log(entry.facts.name, "not saved: other processes keep clearing the folder (%s)", error)
            return False
        except UnicodeError as error:
            log(repr(entry.facts.name), "cannot be written down: %s", error)
            return False
        except OSError as error:
            self._trouble(error)
            return False
        room = room_for_entries(self.max_bytes, self._driver_bytes)
        if self.folder.count()[1] + self._other_bytes > room or size > room:
            with contextlib.suppress(OSError):
                self.prune(max_bytes=int(self.max_bytes * _ROOM))
        return True

    def _write(self, entry: Entry) -> int:
        for tries in range(1, _TRIES + 1):
            try:
                self._check_folder()  # somebody may have removed the folder, and somebody else made one
                return self.folder.write(entry)
            except FileNotFoundError:
                if tries == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def reject(self, digest: str, name: str, reason: str) -> None:
        """Set an entry aside that failed its check or that the driver refused."""
        with self._lock:
            self.corrupt += 1
        log(name, "the entry on disk is set aside: %s", reason)
        with contextlib.suppress(OSError):
            self.folder.set_aside(digest, name)

    def scan(self) -> Iterator[Stored]:
        """Every entry of this device."""
        return self.folder.scan() if self.usable else iter(())

    def find_name(self, name: str) -> list[str]:
        """The keys of the entries saved under a name."""
        return self.folder.find_name(name) if self.usable else []

    def folders(self) -> list[GpuFolder]:
        """The folders of all GPUs in the cache, this one first."""
        if not self.usable:
            return []
        return [self.folder, *(f for f in gpu_folders(self.root, None, self.trust) if f.path != self.folder.path)]

    @contextlib.contextmanager
    def alone(self, digest: str, timeout_seconds: float, name: str = "") -> Iterator[bool]:
        """Keep other processes from compiling the same key during the block. False: no lock could be had, go on anyway."""
        if not self.usable:
            yield False
            return
        lock: FileLock = self.folder.lock(digest)
        try:
            lock.acquire(timeout_seconds)
        except LockUnavailable as error:
            log(name or digest[:12], "going on without a lock: %s", error)
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    # --- statistics of all processes

    def add_to_sums(self, counts: dict[str, float]) -> bool:
        """Add to the counts of all processes; False where they cannot be kept now."""
        return (self.usable or self._root_usable) and add_to_file(self.root / "cache_stats.json", counts, self.trust)

    def read_sums(self) -> dict[str, float]:
        """The counts of all processes so far."""
        if not (self.usable or self._root_usable):
            return dict.fromkeys(COUNTERS, 0.0)
        return read_file(self.root / "cache_stats.json", self.trust)

    # --- upkeep

    def count(self) -> tuple[int, int]:
        """Entries and bytes of this device, the driver's own cache included."""
        if not self.usable:
            return 0, 0
        entries, size = self.folder.count()
        return entries, size + self.folder.foreign.nbytes()

    def prune(
        self,
        max_age_days: float | None = None,
        max_bytes: int | None = None,
        gone: Callable[[GpuFolder], bool] | None = None,
    ) -> Pruned:
        """Remove folders that `gone` names, entries not used for `max_age_days`, and the oldest down to `max_bytes`."""
        from .upkeep import prune_root  # rarely needed, and start-up counts

        if not self.usable:
            return Pruned()
        try:
            pruned = prune_root(self.root, max_age_days, max_bytes, gone, in_use=self.folder.path, trust=self.trust)
            self._look_elsewhere()
        except FileNotFoundError:  # other processes clear the cache
            return Pruned()
        except OSError as error:
            self._trouble(error)
            return Pruned()
        return pruned

    def _look_elsewhere(self) -> None:
        folders = gpu_folders(self.root, None, self.trust)
        self._other_bytes = sum(folder.count()[1] for folder in folders if folder.path != self.folder.path)
        self._driver_bytes = sum(folder.foreign.nbytes() for folder in folders)

    def _trouble(self, error: OSError) -> None:
        """Stop writing for a while, and say so once. A folder that is not private is not read from either."""
        self._again_at = time.monotonic() + _RETRY_SECONDS
        if isinstance(error, NotPrivate):
            self._usable = self._root_usable = False
        reason = error.strerror or str(error)
        self._warn("folder", f"programs cannot be kept in {self.root} ({reason}); they are kept in memory only")

    def _warn(self, kind: str, text: str) -> None:
        """Log it; the first of its kind is a warning."""
        with self._lock:
            first = kind not in self._warned
            self._warned.add(kind)
        log(self.folder.path.name, "%s", text)
        if first:
            with contextlib.suppress(Warning):  # where warnings are errors, this one still breaks nothing
                warnings.warn(escaped(text), CacheWarning, stacklevel=2)
