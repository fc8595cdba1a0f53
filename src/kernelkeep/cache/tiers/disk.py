"""The disk tier: the folder of this GPU, and the bound and upkeep of the whole cache folder.

A folder that another user could have written to is not used: nothing is read from it, because what a cache holds is executed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from ... import settings
from ...storage.locks import FileLock
from ...storage.private import NotPrivate, Trust, default_trust, make_private_folder
from ..filling import folder_to_fill
from ..gpu_folder import GpuFolder
from ..log import log
from ..stats import COUNTERS, STATS_FILE, add_to_file, read_file
from .tier import NotStored, NotWritable, Place, Tier

_TRIES = 10  # to write, while other processes clear the folder
_ROOM = 0.9  # pruning by bytes goes down to this share of the bound, so that it is not needed again at once


class Pruned(msgspec.Struct, frozen=True):
    """What was removed; `left` has a path and a reason for each file that could not be.

    `in_use` names the folders whose foreign cache folder stays, because a running process holds it.
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


def room_for_entries(max_bytes: int, foreign_bytes: int) -> int:
    """How much of the bound is left for programs beside the foreign cache folders; at least half of it.

    A foreign cache folder that is in use cannot be made smaller from outside (OpenGL drivers bound theirs at 256 MiB). It
    must not push out all programs.
    """
    return max(max_bytes - foreign_bytes, max_bytes // 2)


class _Elsewhere(msgspec.Struct, frozen=True):
    """What the cache folder holds beside the programs of this device."""

    program_bytes: int
    foreign_bytes: int


class DiskTier(Tier):
    """Entries of one device in its folder, within the bound of the cache folder `root`."""

    name = "disk"
    origin = "disk"
    retry_seconds = (30.0, 30.0)

    def __init__(
        self, root: Path, folder: str, fingerprint: dict[str, Any], max_bytes: int, trust: Trust | None = None
    ) -> None:
        self.root = root
        self.max_bytes = max_bytes
        self.trust = trust or default_trust()
        self.folder = GpuFolder(root / folder, self.trust)
        self._facts = {"fingerprint": fingerprint}
        self._root_usable = False  # the path to the cache folder was checked and is private
        self.usable = False  # the path to this GPU's folder too: it may be read
        self._refusal: OSError | None = None  # why the folder is not to be read
        # Programs of other devices and foreign cache folders, as of the last look. Nobody looks before an entry is saved:
        # a process that finds all its programs need not know.
        self._elsewhere: _Elsewhere | None = None
        self._missing = False  # there is no folder of this GPU, and none can be made
        self._ahead: dict[str, GpuFolder] = {}  # folders of architectures that were found private

    @property
    def location(self) -> str:
        """The cache folder."""
        return str(self.root)

    def open(self) -> None:
        """Check that the folder is private, and make it ready."""
        for tries in range(1, _TRIES + 1):
            self.usable, self._refusal = False, None
            self._missing = root_checked = False
            self._ahead.clear()
            try:
                make_private_folder(self.root, self.trust)
                self._root_usable = root_checked = True
                self._check_folder()
                self.usable = True
                self.folder.prepare(self._facts)
                self._elsewhere = None
                return
            except FileNotFoundError as error:  # somebody clears the cache
                if tries == _TRIES:
                    self._fail_to_open(error, root_checked)
            except OSError as error:
                self._fail_to_open(error, root_checked)

    def _fail_to_open(self, error: OSError, root_checked: bool) -> None:
        # In a cache folder that is read-only, such as one in the image of a container, the folder of this GPU cannot be made.
        # What was compiled ahead is there all the same.
        private = root_checked and not isinstance(error, NotPrivate)
        self._missing = not self.usable and private and not _is_there(self.folder)
        if self.usable or self._missing:
            raise NotWritable(error.strerror or str(error)) from error
        self._refuse(error)

    def _refuse(self, error: OSError) -> NoReturn:
        """Read nothing more until `open` succeeds; where others may write to the cache folder, not even its counts."""
        self.usable, self._refusal = False, error
        if isinstance(error, NotPrivate):
            self._root_usable = False
        raise error

    def _check_usable(self) -> None:
        if self._refusal is not None:
            raise self._refusal

    def _check_folder(self) -> None:
        make_private_folder(self.folder.path, self.trust)
        self.folder.check_private()

    # --- entries

    def get(self, digest: str) -> bytes | None:
        """The bytes of an entry. One file that cannot be read is a miss and no failure of the tier."""
        return self.get_named(digest, "")

    def get_usual(self, digest: str, name: str) -> bytes | None:
        """The bytes of the entry that was saved under a name."""
        return None if self._refusal is not None or self._missing else self.folder.read_usual(digest, name)

    def get_named(self, digest: str, name: str) -> bytes | None:
        """The same, found faster under the name it was saved under."""
        if self._refusal is not None:
            raise self._refusal
        if self._missing:
            return None
        try:
            return self.folder.read(digest, name)
        except NotPrivate as error:
            self._refuse(error)
        except OSError as error:
            log(name or digest[:12], "cannot be read from disk: %s", error)
        return None

    def has(self, digest: str, name: str) -> bool:
        """Whether there is a file."""
        return self.usable and self.folder.has(digest, name)

    def put(self, digest: str, data: bytes) -> None:
        """Publish an entry, and keep the cache folder within its bound."""
        for tries in range(1, _TRIES + 1):
            try:
                self._check_folder()  # somebody may have removed the folder, and somebody else made one
                self.usable, self._missing = True, False
                self.folder.write(digest, data)
                break
            except FileNotFoundError as error:
                if tries == _TRIES:
                    raise NotStored(f"other processes keep clearing the folder ({error})") from None
            except NotPrivate as error:
                self._refuse(error)
        try:
            elsewhere = self._elsewhere or self._look_elsewhere()
        except FileNotFoundError:  # other processes clear the cache: it has room
            return
        except NotPrivate as error:
            self._refuse(error)
        room = room_for_entries(self.max_bytes, elsewhere.foreign_bytes)
        if self.folder.manifest.count()[1] + elsewhere.program_bytes > room or len(data) > room:
            self.prune(max_bytes=int(self.max_bytes * _ROOM))

    # --- programs compiled ahead, in the folders of architectures

    def get_ahead(self, place: Place, name: str) -> bytes | None:
        """The bytes of an entry in the folder of an architecture, which may be missing."""
        self._check_usable()
        folder = self._folder_ahead(place)
        try:
            return None if folder is None else folder.read(place.digest, name)
        except OSError as error:
            log(name or place.digest[:12], "cannot be read from disk: %s", error)
        return None

    def has_ahead(self, place: Place, name: str) -> bool:
        """Whether there is a file."""
        folder = self._folder_ahead(place)
        return folder is not None and folder.has(place.digest, name)

    def find_name_ahead(self, place: Place, name: str) -> list[str]:
        """The digests of the entries saved under a name in the folder of an architecture."""
        folder = self._folder_ahead(place)
        return [] if folder is None else folder.find_name(name)

    def put_ahead(self, place: Place, data: bytes) -> None:
        """Publish an entry in the folder of an architecture."""
        self._check_usable()
        folder_to_fill(self.root, place.folder, place.facts, self.trust).write(place.digest, data)

    def reject_ahead(self, place: Place) -> None:
        """Set an entry aside, in the folder of its architecture."""
        self._check_usable()
        folder = self._folder_ahead(place)
        if folder is not None:
            folder.set_aside(place.digest)

    def _folder_ahead(self, place: Place) -> GpuFolder | None:
        """The folder of an architecture; None where there is none, or where another user could have written to it."""
        known = self._ahead.get(place.folder)
        if known is None and self._root_usable:
            folder = GpuFolder(self.root / place.folder, self.trust)
            with contextlib.suppress(OSError):
                if _is_there(folder):
                    folder.check_private()
                    known = self._ahead[place.folder] = folder
        return known

    # --- entries of this device

    def delete(self, digest: str) -> None:
        """Remove an entry."""
        self._check_usable()
        self.folder.delete(digest)

    def reject(self, digest: str) -> None:
        """Set an entry aside, to be looked at; only the last few are kept."""
        self._check_usable()
        self.folder.set_aside(digest)

    def scan(self) -> Iterator[str]:
        """The digests of this device's entries."""
        self._check_usable()
        return self.folder.digests()

    def lock(self, digest: str) -> FileLock | None:
        """The lock file of a key."""
        return self.folder.lock(digest) if self.usable else None

    def find_name(self, name: str) -> list[str]:
        """The digests of the entries saved under a name."""
        return self.folder.find_name(name) if self.usable else []

    def folders(self) -> list[GpuFolder]:
        """The folders of all GPUs in the cache, this one first."""
        if not self.usable:
            return []
        return [self.folder, *(f for f in gpu_folders(self.root, None, self.trust) if f.path != self.folder.path)]

    # --- statistics of all processes

    def add_to_sums(self, counts: dict[str, float]) -> bool:
        """Add to the counts of all processes; False where they cannot be kept now."""
        return self._root_usable and add_to_file(self.root / STATS_FILE, counts, self.trust)

    def read_sums(self) -> dict[str, float]:
        """The counts of all processes so far."""
        if not self._root_usable:
            return dict.fromkeys(COUNTERS, 0.0)
        return read_file(self.root / STATS_FILE, self.trust)

    # --- the diary of all processes

    def note(self, kind: str, facts: dict[str, Any]) -> None:
        """Add a record to the diary of the cache folder, where it can be kept. Never raises."""
        if self._root_usable and settings.keeps_diary():
            from ...activity.diary import add_record  # at the end of a process, or beside a compile

            add_record(self.root, kind, facts, self.trust)

    def note_counts(self, counts: dict[str, float], since: float) -> None:
        """Record what was counted since a time."""
        counted = {name: round(value, 6) for name, value in counts.items() if value}
        if counted:
            self.note("counts", {"since": round(since, 3), "device": self.folder.path.name, "counts": counted})

    # --- upkeep

    def count(self) -> tuple[int, int]:
        """Entries and bytes of this device, with its foreign cache folder."""
        if not self.usable:
            return 0, 0
        entries, size = self.folder.manifest.count()
        return entries, size + self.folder.foreign.nbytes()

    def prune(
        self,
        max_age_days: float | None = None,
        max_bytes: int | None = None,
        gone: Callable[[GpuFolder], bool] | None = None,
    ) -> Pruned:
        """Remove folders that `gone` names, entries not used for `max_age_days`, and the oldest down to `max_bytes`.

        Raises `OSError` where that fails. A folder that is no longer private is then not read any more.
        """
        from ..upkeep import prune_root  # rarely needed, and start-up counts

        if not self.usable:
            return Pruned()
        try:
            pruned = prune_root(self.root, max_age_days, max_bytes, gone, in_use=self.folder.path, trust=self.trust)
            self._look_elsewhere()
        except FileNotFoundError:  # other processes clear the cache
            return Pruned()
        except NotPrivate as error:
            self._refuse(error)
        return pruned

    def _look_elsewhere(self) -> _Elsewhere:
        folders = gpu_folders(self.root, None, self.trust)
        others = [folder for folder in folders if folder.path != self.folder.path]
        programs = sum(folder.manifest.count()[1] for folder in others)
        found = self._elsewhere = _Elsewhere(programs, sum(folder.foreign.nbytes() for folder in folders))
        return found


def _is_there(folder: GpuFolder) -> bool:
    return os.path.lexists(folder.path)
