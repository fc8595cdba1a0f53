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
import json
import math
import os
import re
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from ..storage.files import Damaged, append_line, make_folder, read_regular, remove, replace, size_of, write_temporary
from ..storage.locks import FileLock, LockUnavailable
from . import entry as entries
from .diary import ENTRY_FILE, REFRESH_SECONDS, Diary
from .entry import Entry, Facts

__all__ = ["GpuFolder", "Stored", "slug"]

_LOCK_SECONDS = 10.0
_KEPT_ASIDE = 20
_PARTS = ("programs", "names", "diary", "driver", "set-aside", "tmp", "locks")
_STALE_TEMPORARY_SECONDS = 3600.0


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


class GpuFolder:
    """Entries of one GPU, driver and compiler. Raises `OSError`; what to make of that is the tier's affair."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.driver = path / "driver"
        self._programs = path / "programs"
        self._prefix = f"{self._programs}/"
        self._names = path / "names"
        self._diary = Diary(path / "diary", self._programs, path / "tmp")
        self._aside = path / "set-aside"
        self._tmp = path / "tmp"
        self._manifest = path / "manifest.json"
        self._lock_path = path / "locks" / "folder.lock"

    # --- the folder itself

    def prepare(self, facts: dict[str, Any]) -> None:
        """Create the folder, or note that it is in use; clear away what killed writers left."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self._programs, self._tmp):
            make_folder(folder)
        now = time.time()
        with self._locked():
            manifest = self.manifest()
            lost = (
                not {"entries", "bytes"} <= manifest.keys()
            )  # a new folder, or one whose manifest was deleted or damaged
            used = manifest.get("last_used")
            recent = isinstance(used, int | float) and -REFRESH_SECONDS < now - used < REFRESH_SECONDS
            if not recent or manifest.get("schema") != 1 or lost:
                manifest = {"schema": 1, "created": now} | manifest | facts
                if lost:
                    manifest["entries"], manifest["bytes"] = self._what_is_there()
                machines = manifest.get("machines")
                manifest["machines"] = {**(machines if isinstance(machines, dict) else {}), _machine(): now}
                manifest["last_used"] = now
                self._write_manifest(manifest)
        for leftover in self._tmp.iterdir():
            with contextlib.suppress(OSError):
                if now - leftover.stat().st_mtime > _STALE_TEMPORARY_SECONDS:
                    leftover.unlink()

    def manifest(self) -> dict[str, Any]:
        """The manifest, or an empty one where it is missing or damaged: it holds nothing that cannot be counted again."""
        try:
            found = json.loads(self._manifest.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(found, dict):
            return {}
        for name in ("entries", "bytes", "last_used"):
            value = found.get(name)
            if not (isinstance(value, int | float) and abs(value) < 1e18):  # what it says cannot be counted on
                found.pop(name, None)
        return found

    @property
    def used_here(self) -> bool:
        """Whether this machine is among those that used the folder."""
        machines = self.manifest().get("machines")
        return isinstance(machines, dict) and _machine() in machines

    def count(self) -> tuple[int, int]:
        """Entries and their bytes, as the manifest has it: no entry is looked at."""
        manifest = self.manifest()
        try:
            return max(0, int(manifest.get("entries", 0))), max(0, int(manifest.get("bytes", 0)))
        except (TypeError, ValueError):
            return self.recount()

    def recount(self) -> tuple[int, int]:
        """Count again what is really there, and write it down, the diary too. Looks at every entry."""
        with self._locked():
            number, total = self._what_is_there()
            with contextlib.suppress(OSError):
                self._write_manifest(self.manifest() | {"entries": number, "bytes": total})
                self._diary.rewrite(self.files())
        return number, total

    def _what_is_there(self) -> tuple[int, int]:
        number = total = 0
        for path in self.files():
            with contextlib.suppress(OSError):
                total += path.lstat().st_size
                number += 1
        return number, total

    def driver_bytes(self) -> int:
        """The size of the driver's own cache."""
        return sum(found.st_size for found in self._driver_files())

    def driver_used(self) -> float | None:
        """When the driver last wrote to its own cache; None where there is none."""
        return max((found.st_mtime for found in self._driver_files()), default=None)

    def _driver_files(self) -> Iterator[os.stat_result]:
        for folder, _, names in os.walk(self.driver):  # what cannot be read is passed over
            for name in names:
                with contextlib.suppress(OSError):
                    yield os.lstat(os.path.join(folder, name))  # noqa: PTH118

    def count_aside(self) -> int:
        """How many files that failed their check are kept to look at."""
        with contextlib.suppress(OSError):
            return sum(1 for _ in self._aside.iterdir())
        return 0

    # --- entries

    def read(self, digest: str, name: str) -> Entry | None:
        """The entry, verified; None where there is none. `Damaged` says what is wrong with it."""
        path = f"{self._prefix}{digest[:3]}/{slug(name)}-{digest}.bin"  # a str: pathlib would be a tenth of a hit
        try:
            data, used = read_regular(path)
        except FileNotFoundError:
            other = self._under_another_name(digest)
            if other is None:
                return None
            path = str(other)
            data, used = read_regular(path)
        found = entries.decode(data, digest)
        now = time.time()
        if not -REFRESH_SECONDS < now - used < REFRESH_SECONDS:
            self._refresh(Path(path), digest, now)
        return found

    def write(self, entry: Entry) -> int:
        """Publish an entry, over an older one of the same key; how many bytes the file has."""
        digest, data = entry.facts.key.digest, entries.encode(entry)
        path = self._under_another_name(digest) or self._path(digest, entry.facts.name)
        make_folder(path.parent)
        temporary = write_temporary(self._tmp, data)
        try:
            with self._locked():
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
        lines = (size_of(page) or 0) // 65
        if lines >= 64 and lines & (lines - 1) == 0:
            kept = [key for key in self.find_name(name) if key == digest or self._under_another_name(key) is not None]
            replace(write_temporary(self._tmp, "".join(f"{key}\n" for key in kept).encode()), page)

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
            with contextlib.suppress(OSError, LockUnavailable), self._locked():
                self._count_change(entries=-1, size=-(size or 0))
        path.with_suffix(".meta").unlink(missing_ok=True)
        kept = sorted(self._aside.iterdir(), key=lambda found: found.lstat().st_mtime)
        for old in kept[:-_KEPT_ASIDE]:
            remove(old)

    def find_name(self, name: str) -> list[str]:
        """The keys of the entries saved under a name, oldest first."""
        with contextlib.suppress(OSError):
            lines = (self._names / slug(name)).read_text(encoding="ascii", errors="replace").split()
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
            data, used = read_regular(path)
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
        with self._locked():
            removed, freed = self._diary.prune(day, before, excess_bytes, until)
            if removed:
                self._count_change(entries=-removed, size=-freed)
        return removed, freed

    def prune_driver(self, before: float) -> int:
        """Remove the driver's cache if nothing in it was used since `before`; the bytes that went."""
        used = self.driver_used()
        if used is None or used >= before:
            return 0
        size = self.driver_bytes()
        remove(self.driver)
        return size

    def remove(self) -> None:
        """Remove everything of ours in the folder, and the folder itself unless something else is in it."""
        for part in (*_PARTS, "manifest.json"):
            with contextlib.suppress(OSError):
                remove(self.path / part)
        with contextlib.suppress(OSError):
            self.path.rmdir()

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
        with contextlib.suppress(FileNotFoundError):
            for shard in sorted(self._programs.iterdir()):
                with contextlib.suppress(OSError):
                    yield from sorted(path for path in shard.iterdir() if path.suffix == ".bin")

    def _refresh(self, path: Path, digest: str, now: float) -> None:
        with contextlib.suppress(OSError, LockUnavailable):  # a read-only cache serves all the same
            os.utime(path, (now, now))
            with self._locked():
                self._diary.note(path.name, digest, now)

    def _count_change(self, *, entries: int, size: int) -> None:
        manifest = self.manifest()
        try:
            manifest["entries"] = max(0, int(manifest.get("entries", 0)) + entries)
            manifest["bytes"] = max(0, int(manifest.get("bytes", 0)) + size)
        except (TypeError, ValueError):
            manifest["entries"], manifest["bytes"] = max(0, entries), max(0, size)
        self._write_manifest(manifest)

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        replace(write_temporary(self._tmp, json.dumps(manifest, indent=2).encode()), self._manifest)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FileLock(self._lock_path)
        try:
            lock.acquire(_LOCK_SECONDS)
        except LockUnavailable:
            # Counts may drift, which counting again cures; entries themselves need no lock.
            yield
            return
        try:
            yield
        finally:
            lock.release()


def _machine() -> str:
    """This machine, as far as the folder cares: shared homes hold the folders of several."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError):
            text = Path(path).read_text(encoding="ascii").strip()
            if text:
                return text[:32]
    return os.uname().nodename
