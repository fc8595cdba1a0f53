"""The folder of one GPU, driver and compiler on disk.

    <GPU>/manifest.json                            what this folder belongs to, how much is in it
    <GPU>/programs/<3 digits>/<name>-<key>.bin     one entry, complete in itself (`entry.py`)
    <GPU>/programs/<3 digits>/<name>-<key>.meta    its facts, to read; may be deleted at any time
    <GPU>/names/<name>                             the keys that were saved under a name
    <GPU>/diary/<day>                              which entries were written or used that day, a line each
    <GPU>/diary/<day>.done                         how far pruning has come in it
    <GPU>/driver/                                  the driver's own shader cache (OpenGL)
    <GPU>/set-aside/                               files that failed their check, the last few
    <GPU>/locks/, <GPU>/tmp/                       under way

Entries are published by writing a temporary file and renaming it, so a reader sees a whole one or none. Nothing is synced:
after a power cut a file may be damaged, which its checksum tells.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from ..storage.files import (
    Damaged,
    append_line,
    carry_over,
    make_folder,
    read_regular,
    remove,
    replace,
    size_of,
    write_temporary,
)
from ..storage.foreign_folder import FOREIGN, ForeignFolder
from ..storage.locks import FileLock, LockUnavailable
from ..storage.private import Trust, default_trust
from ..storage.removal import remove_all
from ..storage.shared_counts import SharedCounts
from . import entry as entries
from .diary import ENTRY_FILE, REFRESH_SECONDS, Diary
from .entry import Entry, Facts

__all__ = ["GpuFolder", "Removed", "Stored", "slug"]

_KEPT_ASIDE = 20
_PARTS = ("programs", "names", "diary", FOREIGN, "set-aside", "tmp", "locks")
_STALE_TEMPORARY_SECONDS = 3600.0
_OUR_NAME = re.compile(r"[a-z]+_.+_[0-9a-f]{12}\Z")  # backend, model and so on, and 12 digits of the fingerprint


@lru_cache(maxsize=1024)
def slug(name: str) -> str:
    """A program's name as part of a file name: short, plain, and never a path."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[:48].strip("-.")
    return plain or "program"


class Stored(msgspec.Struct, frozen=True):
    """An entry file as a listing shows it; `facts` is None where the entry is damaged."""

    path: Path
    digest: str
    nbytes: int
    last_used: float
    facts: Facts | None
    damage: str = ""

    @property
    def folder(self) -> str:
        """The name of the GPU's folder it lies in."""
        return self.path.parents[2].name


class Removed(msgspec.Struct, frozen=True):
    """What really went of a folder, and what did not: `left` has a path and a reason for each.

    `driver_stays` where a running process works in the driver's folder.
    """

    entries: int
    bytes: int
    left: tuple[str, ...]
    driver_stays: bool = False


class GpuFolder:
    """Entries of one GPU, driver and compiler. Raises `OSError`; what to make of that is the tier's affair.

    Processes wait for each other nowhere but in `lock`, for a compile. Counts are added up by a `SharedCounts`.
    """

    def __init__(self, path: Path, trust: Trust | None = None) -> None:
        self.path = path
        self.trust = trust or default_trust()
        self.foreign = ForeignFolder(path)
        self._programs = path / "programs"
        self._prefix = f"{self._programs}/"
        self._names = path / "names"
        self._diary = Diary(path / "diary", self._programs, path / "tmp", self.trust)
        self._aside = path / "set-aside"
        self._tmp = path / "tmp"
        self._facts: dict[str, Any] = {}
        self._counts = SharedCounts(path / "manifest.json", path / "locks" / "folder.lock", self.trust, self._complete)
        self._checked: set[str] = set()  # parts of `programs` that were found private; "" is `programs` itself

    # --- the folder itself

    def is_ours(self) -> bool:
        """Whether this is a folder of the cache: its manifest has our fields, or its name is that of a fingerprint."""
        manifest = self.manifest()
        marked = isinstance(manifest.get("schema"), int) and isinstance(manifest.get("fingerprint"), dict)
        if marked or not _OUR_NAME.match(self.path.name):
            return marked
        inside = {found.name for found in self.path.iterdir()}
        return not inside or not inside.isdisjoint(_PARTS)

    def check_private(self) -> None:
        """`OSError` where another user could have put something into the folder. Its parents were checked."""
        self.trust.check_part(self.path)
        for part in _PARTS:
            self.trust.check_part(self.path / part)

    def prepare(self, facts: dict[str, Any]) -> None:
        """Create the folder, or note that it is in use; clear away what killed writers left."""
        self._facts = facts
        for folder in (self._programs, self._tmp):
            make_folder(folder)
        now = time.time()
        manifest = self.manifest()
        used = manifest.get("last_used")
        recent = isinstance(used, int | float) and -REFRESH_SECONDS < now - used < REFRESH_SECONDS
        if not recent or manifest.get("schema") != 1 or not {"entries", "bytes"} <= manifest.keys():
            self._counts.change(self._note_use)
        for leftover in self._tmp.iterdir():
            with contextlib.suppress(OSError):
                if now - leftover.lstat().st_mtime > _STALE_TEMPORARY_SECONDS:
                    leftover.unlink()

    def _note_use(self, manifest: dict[str, Any]) -> None:
        now = time.time()
        machines = manifest.get("machines")
        manifest.update(self._facts)
        manifest["machines"] = {**(machines if isinstance(machines, dict) else {}), _machine(): now}
        manifest["last_used"] = now

    def _complete(self, found: dict[str, Any]) -> dict[str, Any]:
        """A manifest with everything in it: that of a new folder, or one that was deleted or damaged, counts anew."""
        found = {"schema": 1, "created": time.time()} | _sane(found)
        if not isinstance(found.get("fingerprint"), dict):
            found.update(self._facts)
        if not {"entries", "bytes"} <= found.keys():
            found["entries"], found["bytes"] = self._what_is_there()
        return found

    def manifest(self) -> dict[str, Any]:
        """The manifest, or an empty one where it is missing or damaged: it holds nothing that cannot be counted again."""
        return _sane(self._counts.read())

    @property
    def used_here(self) -> bool:
        """Whether this machine is among those that used the folder."""
        machines = self.manifest().get("machines")
        return isinstance(machines, dict) and _machine() in machines

    def count(self) -> tuple[int, int]:
        """Entries and their bytes, as the manifest has it: no entry is looked at."""
        manifest = self.manifest()
        return max(0, int(manifest.get("entries", 0))), max(0, int(manifest.get("bytes", 0)))

    def recount(self) -> tuple[int, int]:
        """Count again what is really there, and write it down, the diary too. Looks at every entry.

        While another process has the folder's lock nothing is written down.
        """
        counted: list[tuple[int, int]] = []

        def count() -> dict[str, float]:
            counted.append(self._what_is_there())
            self._diary.rewrite(self.files)
            return {"entries": counted[0][0], "bytes": counted[0][1]}

        with contextlib.suppress(OSError):
            self._counts.recount(count)
        return counted[0] if counted else self._what_is_there()

    def _what_is_there(self) -> tuple[int, int]:
        number = total = 0
        for path in self.files():
            with contextlib.suppress(OSError):
                total += path.lstat().st_size
                number += 1
        return number, total

    def count_aside(self) -> int:
        """How many files that failed their check are kept to look at."""
        with contextlib.suppress(OSError):
            return sum(1 for _ in self._aside.iterdir())
        return 0

    # --- entries

    def read(self, digest: str, name: str) -> Entry | None:
        """The entry, verified; None where there is none. `Damaged` says what is wrong with it."""
        shard = digest[:3]
        if shard not in self._checked:
            self._check_shard(shard)
        path = f"{self._prefix}{shard}/{slug(name)}-{digest}.bin"  # a str: pathlib would be a tenth of a hit
        try:
            data, used = read_regular(path, self.trust)
        except FileNotFoundError:
            other = self._under_another_name(digest)
            if other is None:
                return None
            path = str(other)
            data, used = read_regular(path, self.trust)
        found = entries.decode(data, digest)
        now = time.time()
        if not -REFRESH_SECONDS < now - used < REFRESH_SECONDS:
            self._refresh(Path(path), digest, now)
        return found

    def _check_shard(self, shard: str) -> None:
        """Once for each part of `programs`: what passed cannot be changed by anybody else."""
        if "" not in self._checked and self.trust.check_part(self._programs):
            self._checked.add("")
        if self.trust.check_part(self._prefix + shard):
            self._checked.add(shard)

    def write(self, entry: Entry) -> int:
        """Publish an entry, over an older one of the same key; how many bytes the file has.

        `FileNotFoundError` where somebody cleared the folder meanwhile.
        """
        data = entries.encode(entry)
        digest = entry.facts.key.digest
        path = self._under_another_name(digest) or self._path(digest, entry.facts.name)
        make_folder(path.parent)
        temporary = write_temporary(self._tmp, data)
        try:
            before = size_of(path)
            self._diary.note(path.name, digest, time.time())
            if before is None:
                self._note_name(slug(entry.facts.name), digest)
            self._count_change(entries=int(before is None), size=len(data) - (before or 0))
            replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        with contextlib.suppress(OSError):  # only for people
            facts = msgspec.json.format(msgspec.json.encode(entry.facts), indent=2)
            replace(write_temporary(self._tmp, facts), path.with_suffix(".meta"))
        return len(data)

    def _note_name(self, name: str, digest: str) -> None:
        """Write down that a key was saved under a name. Whenever the list has doubled, keys that are gone are dropped."""
        page = self._names / name
        append_line(page, f"{digest}\n")
        size = size_of(page) or 0
        lines = size // 65
        if lines >= 64 and lines & (lines - 1) == 0:
            kept = [key for key in self.find_name(name) if key == digest or self._under_another_name(key) is not None]
            carry_over(write_temporary(self._tmp, "".join(f"{key}\n" for key in kept).encode()), page, size)

    def set_aside(self, digest: str, name: str) -> None:
        """Move a bad file out of the way, whatever it is, and keep the last few to look at."""
        path = self._path(digest, name)
        if not os.path.lexists(path):
            path = self._under_another_name(digest) or path
        self._move_aside(path)

    def _move_aside(self, path: Path) -> None:
        size = size_of(path)
        make_folder(self._aside)
        with contextlib.suppress(FileNotFoundError):  # another process was first
            path.rename(self._aside / f"{path.stem[:120]}.{os.urandom(4).hex()}")
            with contextlib.suppress(OSError):
                self._count_change(entries=-1, size=-(size or 0))
        path.with_suffix(".meta").unlink(missing_ok=True)
        kept = sorted(self._aside.iterdir(), key=lambda found: found.lstat().st_mtime)
        for old in kept[:-_KEPT_ASIDE]:
            remove(old)

    def find_name(self, name: str) -> list[str]:
        """The keys of the entries saved under a name, oldest first."""
        with contextlib.suppress(OSError, Damaged):
            lines = read_regular(self._names / slug(name), self.trust)[0].decode("ascii", "replace").split()
            return list(dict.fromkeys(line for line in lines if re.fullmatch(r"[0-9a-f]{64}", line)))
        return []

    def scan(self) -> Iterator[Stored]:
        """Every entry, each checked to the last byte."""
        for path in self.files():
            yield self.look(path)

    def look(self, path: Path) -> Stored:
        """One entry file, checked."""
        match = ENTRY_FILE.match(path.name)
        digest = match.group("digest") if match else ""
        try:
            data, used = read_regular(path, self.trust)
            found = entries.decode(data, digest)
            return Stored(path, digest, len(data), used, found.facts)
        except Damaged as damage:
            return Stored(path, digest, size_of(path) or 0, 0.0, None, str(damage))
        except OSError as error:
            return Stored(path, digest, 0, 0.0, None, error.strerror or str(error))

    def repair(self, stored: Stored) -> None:
        """Set a damaged entry aside."""
        self._move_aside(stored.path)

    # --- pruning

    def days(self) -> list[str]:
        """The days the diary has, oldest first."""
        return self._diary.days()

    def next_use(self, day: str) -> float | None:
        """When the first entry on a page of the diary was used that pruning has not dealt with; None at the end."""
        return self._diary.next_use(day)

    def prune_day(
        self, day: str, before: float | None, excess_bytes: int | None, until: float = math.inf
    ) -> tuple[int, int]:
        """Remove what a page of the diary lists, oldest first: not used since `before`, or until `excess_bytes` are gone.

        Lines later than `until` are left alone. Returns how many entries and bytes went.
        """
        removed, freed = self._diary.prune(day, before, excess_bytes, until)
        if removed:
            self._count_change(entries=-removed, size=-freed)
        return removed, freed

    def remove(self) -> Removed:
        """Remove everything of ours in the folder, and the folder itself unless something else is in it.

        Locks that other processes hold stay, the driver's folder while one works in it, and what cannot be removed.
        """
        number = size = 0
        left: dict[str, str] = {}

        def count_entry(path: str, nbytes: int) -> None:
            nonlocal number, size
            if path.endswith(".bin"):
                number, size = number + 1, size + nbytes

        def count_bytes(path: str, nbytes: int) -> None:
            nonlocal size
            size += nbytes

        idle = self.foreign.remove(left, count_bytes)
        self._remove_idle_locks()
        for part in ("programs", "names", "diary", "set-aside", "tmp"):
            remove_all(self.path / part, left, count_entry if part == "programs" else None)
        try:
            self._counts.remove()
        except OSError as error:
            left[str(error.filename)] = error.strerror or str(error)
        with contextlib.suppress(OSError):
            self.path.rmdir()
        return Removed(number, size, tuple(f"{path}: {reason}" for path, reason in left.items()), driver_stays=not idle)

    def _remove_idle_locks(self) -> None:
        folder = self.path / "locks"
        with contextlib.suppress(OSError):
            for path in list(folder.iterdir()):
                with contextlib.suppress(LockUnavailable), FileLock(path).held(0):
                    pass  # letting go removes it
            folder.rmdir()

    def lock(self, digest: str) -> FileLock:
        """The lock under which one process compiles a key."""
        return FileLock(self.path / "locks" / f"{digest}.lock")

    # --- inside

    def _path(self, digest: str, name: str) -> Path:
        return self._programs / digest[:3] / f"{slug(name)}-{digest}.bin"

    def _under_another_name(self, digest: str) -> Path | None:
        """A name is a label: the program may have been saved under another one."""
        with contextlib.suppress(OSError), os.scandir(self._programs / digest[:3]) as found:
            for item in found:
                if item.name.endswith(f"-{digest}.bin"):
                    return Path(item.path)
        return None

    def files(self) -> Iterator[Path]:
        """Every entry file, unread."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for shard in sorted(self._programs.iterdir()):
                with contextlib.suppress(OSError):
                    yield from sorted(path for path in shard.iterdir() if path.suffix == ".bin")

    def _refresh(self, path: Path, digest: str, now: float) -> None:
        with contextlib.suppress(OSError):  # a read-only cache serves all the same
            os.utime(path, (now, now))
            self._diary.note(path.name, digest, now)

    def _count_change(self, *, entries: int, size: int) -> None:
        self._counts.add({"entries": entries, "bytes": size})


def _sane(manifest: dict[str, Any]) -> dict[str, Any]:
    """Without numbers that cannot be counted on."""
    for name in ("entries", "bytes", "last_used"):
        value = manifest.get(name)
        if not (isinstance(value, int | float) and abs(value) < 1e18):
            manifest.pop(name, None)
    return manifest


def _machine() -> str:
    """This machine, as far as the folder cares: shared homes hold the folders of several."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError):
            text = Path(path).read_text(encoding="ascii").strip()
            if text:
                return text[:32]
    return os.uname().nodename
