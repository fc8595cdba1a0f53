"""The folder of one GPU, driver and compiler on disk.

    <GPU>/manifest.json                            what this folder belongs to, how much is in it (`manifest.py`)
    <GPU>/programs/<3 digits>/<name>-<key>.bin     one entry, complete in itself (`entry.py`)
    <GPU>/programs/<3 digits>/<name>-<key>.meta    its facts, to read; may be deleted at any time
    <GPU>/names/<name>                             the keys that were saved under a name
    <GPU>/driver/                                  a foreign cache folder (`storage/foreign_folder.py`)
    <GPU>/set-aside/                               files that failed their check, the last few
    <GPU>/locks/, <GPU>/tmp/                       in use
    <GPU>/diary/                                   left by older versions; removed

Entries are published by writing a temporary file and renaming it, so a reader sees a whole one or none. Nothing is synced:
after a power cut a file may be damaged, which its checksum tells. The last use of an entry is the modification time of its file.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from ..platforms import system
from ..storage.files import (
    Damaged,
    append_line,
    make_folder,
    move,
    publish,
    read_regular,
    read_usual,
    remove,
    replace_appended,
    size_of,
    write_temporary,
)
from ..storage.foreign_folder import FOREIGN, ForeignFolder
from ..storage.locks import FileLock, LockUnavailable
from ..storage.private import Trust, default_trust
from ..storage.removal import remove_all
from . import entry as entries
from .entry import Entry
from .entry_files import Stored, Use, digest_in, look_at, slug, unlink_entry, use_of
from .manifest import REFRESH_SECONDS, Manifest

_KEPT_ASIDE = 20
_OLD_DIARY = "diary"
_PARTS = ("programs", "names", FOREIGN, "set-aside", "tmp", "locks")
_STALE_TEMPORARY_SECONDS = 3600.0
_OUR_NAME = re.compile(r"[a-z]+_.+_[0-9a-f]{12}\Z")  # backend, model and so on, and 12 digits of the fingerprint
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Removed(msgspec.Struct, frozen=True):
    """What was removed of a folder. `left` has a path and a reason for each file that could not be removed.

    `foreign_held` where a running process holds the foreign cache folder, which therefore stays.
    """

    entries: int
    bytes: int
    left: tuple[str, ...]
    foreign_held: bool = False


class GpuFolder:
    """Entries of one GPU, driver and compiler. Its methods raise `OSError`.

    Processes wait for each other only in `lock`, while one of them compiles.
    """

    def __init__(self, path: Path, trust: Trust | None = None) -> None:
        self.path = path
        self.trust = trust or default_trust()
        self.foreign = ForeignFolder(path)
        self.manifest = Manifest(path, self.trust, lambda: _totals(self.uses()))
        self._programs = path / "programs"
        self._prefix = f"{self._programs}/"
        self._names = path / "names"
        self._aside = path / "set-aside"
        self._tmp = path / "tmp"
        self._checked: set[str] = set()  # parts of `programs` that were found private; "" is `programs` itself

    # --- the folder itself

    def is_ours(self) -> bool:
        """Whether this is a folder of the cache: its manifest has our fields, or its name is that of a fingerprint."""
        marked = self.manifest.is_ours()
        if marked or not _OUR_NAME.match(self.path.name):
            return marked
        inside = {found.name for found in self.path.iterdir()}
        return not inside or not inside.isdisjoint((*_PARTS, _OLD_DIARY))

    def check_private(self) -> None:
        """`OSError` where another user could have put something into the folder. Its parents were checked before."""
        self.trust.check_part(self.path)
        for part in _PARTS:
            self.trust.check_part(self.path / part)

    def prepare(self, facts: dict[str, Any], *, used_here: bool = True) -> None:
        """Create the folder or note that it is in use, and remove what killed writers left.

        Not `used_here`: for a GPU that need not be in this machine.
        """
        for folder in (self._programs, self._tmp):
            make_folder(folder)
        if self.manifest.note_use(facts, used_here=used_here):
            remove(self.path / _OLD_DIARY)
        now = time.time()
        for leftover in self._tmp.iterdir():
            with contextlib.suppress(OSError):
                if now - leftover.lstat().st_mtime > _STALE_TEMPORARY_SECONDS:
                    leftover.unlink()

    def recount(self) -> list[Use]:
        """Count again what is really there, and write it down; returns the entries it found."""
        found: list[Use] | None = None

        def count() -> tuple[int, int]:
            nonlocal found
            found = list(self.uses())
            return _totals(found)

        self.manifest.recount(count)
        return list(self.uses()) if found is None else found

    def count_aside(self) -> int:
        """How many files that failed their check are kept."""
        with contextlib.suppress(OSError):
            return sum(1 for _ in self._aside.iterdir())
        return 0

    # --- entries

    def read_usual(self, digest: str, name: str) -> bytes | None:
        """The bytes of the entry that was saved under a name. None says nothing: `read` searches, and tells what is wrong."""
        shard = digest[:3]
        if shard not in self._checked:
            self._check_shard(shard)
        path = f"{self._prefix}{shard}/{slug(name)}-{digest}.bin"  # a str: pathlib would be a tenth of a hit
        found = read_usual(path, self.trust)
        if found is None:
            return None
        data, used = found
        _note_use(path, used)
        return data

    def read(self, digest: str, name: str = "") -> bytes | None:
        """The bytes of an entry; None where there is none. `Damaged` where its file is no regular file of a trusted user.

        With the name under which it was probably saved it is found faster.
        """
        shard = digest[:3]
        if shard not in self._checked:
            self._check_shard(shard)
        path = f"{self._prefix}{shard}/{slug(name)}-{digest}.bin"
        try:
            data, used = read_regular(path, self.trust)
        except FileNotFoundError:
            other = self._find(digest)
            if other is None:
                return None
            path = str(other)
            data, used = read_regular(path, self.trust)
        _note_use(path, used)
        return data

    def use(self, digest: str, name: str) -> int | None:
        """The size of the entry that was saved under a name, which counts as used; None where there is none."""
        path = f"{self._prefix}{digest[:3]}/{slug(name)}-{digest}.bin"
        try:
            found = os.lstat(path)
        except OSError:
            return None
        _note_use(path, found.st_mtime)
        return found.st_size

    def lately_used(self, name: str, most: int) -> set[str]:
        """Of the last keys saved under a name, those of entries whose last use need not be written yet."""
        since = time.time() - REFRESH_SECONDS
        found = set()
        for digest in self.find_name(name)[-most:]:
            with contextlib.suppress(OSError):
                if os.lstat(f"{self._prefix}{digest[:3]}/{slug(name)}-{digest}.bin").st_mtime > since:
                    found.add(digest)
        return found

    def has(self, digest: str, name: str = "") -> bool:
        """Whether there is a file for an entry."""
        path = f"{self._prefix}{digest[:3]}/{slug(name)}-{digest}.bin"
        return os.path.exists(path) or self._find(digest) is not None  # noqa: PTH110

    def read_entry(self, digest: str, name: str = "") -> Entry | None:
        """The entry, verified; None where there is none. `Damaged` says what is wrong with it."""
        data = self.read(digest, name)
        return None if data is None else entries.decode(data, digest)

    def _check_shard(self, shard: str) -> None:
        """Once for each part of `programs`: nobody else can change what passed."""
        if "" not in self._checked and self.trust.check_part(self._programs):
            self._checked.add("")
        if self.trust.check_part(self._prefix + shard):
            self._checked.add(shard)

    def write(self, digest: str, data: bytes, *, count: bool = True) -> None:
        """Publish the bytes of an entry, in place of an older one of the same key.

        `FileNotFoundError` where somebody cleared the folder meanwhile. Without `count` the caller calls `recount` in the end:
        for many entries, the manifest would take longer than they do.
        """
        name, facts = entries.read_facts(data)
        path = self._find(digest) or self._programs / digest[:3] / f"{slug(name)}-{digest}.bin"
        make_folder(path.parent)
        temporary = write_temporary(self._tmp, data)
        try:
            before = size_of(path)
            if before is None:
                self._note_name(slug(name), digest)
            if count:
                self.manifest.add(entries=int(before is None), size=len(data) - (before or 0))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        publish(temporary, path)
        with contextlib.suppress(OSError):  # only for people
            publish(write_temporary(self._tmp, msgspec.json.format(facts, indent=2)), path.with_suffix(".meta"))

    def _note_name(self, name: str, digest: str) -> None:
        """Write down that a key was saved under a name. Whenever the list has doubled, keys that are gone are dropped."""
        page = self._names / system.file_name(name)
        append_line(page, f"{digest}\n")
        size = size_of(page) or 0
        lines = size // 65
        if lines >= 64 and lines & (lines - 1) == 0:
            kept = [key for key in self.find_name(name) if key == digest or self._find(key) is not None]
            text = "".join(f"{key}\n" for key in kept)
            replace_appended(write_temporary(self._tmp, text.encode()), page, size)

    def delete(self, digest: str) -> None:
        """Remove an entry; one that is not there is no error."""
        path = self._find(digest)
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                self.remove_entries([use_of(path)])

    def remove_entries(self, uses: Iterable[Use]) -> tuple[int, int]:
        """Remove entries that were not used since; how many went, and their bytes. Others' removals are not counted."""
        number = size = 0
        try:
            for use in uses:
                path = Path(use.path)
                with contextlib.suppress(FileNotFoundError):
                    if use_of(path).used > use.used:
                        continue
                    unlink_entry(path)
                    number, size = number + 1, size + use.nbytes
        finally:
            if number:
                self.manifest.add(entries=-number, size=-size)
        return number, size

    def set_aside(self, digest: str) -> None:
        """Move an entry's file out of the way, whatever it is, and keep the last few to look at."""
        path = self._find(digest)
        if path is not None:
            self.set_file_aside(path)

    def set_file_aside(self, path: Path) -> None:
        """Do so with a file that is known."""
        size = size_of(path)
        make_folder(self._aside)
        if move(path, self._aside / f"{path.stem[:120]}.{os.urandom(4).hex()}"):
            with contextlib.suppress(OSError):
                self.manifest.add(entries=-1, size=-(size or 0))
        path.with_suffix(".meta").unlink(missing_ok=True)
        kept = sorted(self._aside.iterdir(), key=lambda found: found.lstat().st_mtime)
        for old in kept[:-_KEPT_ASIDE]:
            remove(old)

    def find_name(self, name: str) -> list[str]:
        """The keys of the entries saved under a name, oldest first."""
        with contextlib.suppress(OSError, Damaged):
            lines = (
                read_regular(self._names / system.file_name(slug(name)), self.trust)[0]
                .decode("ascii", "replace")
                .split()
            )
            return list(dict.fromkeys(line for line in lines if _DIGEST.fullmatch(line)))
        return []

    def scan(self) -> Iterator[Stored]:
        """Every entry, verified."""
        for path in self.files():
            yield look_at(path, self.trust)

    def digests(self) -> Iterator[str]:
        """The digests of all entries, from the names of their files."""
        return (digest for path in self.files() if (digest := digest_in(path)))

    def files(self) -> list[Path]:
        """Every entry file, in order of its path; reads no entry."""
        return sorted(Path(use.path) for use in self.uses())

    def uses(self) -> Iterator[Use]:
        """The last use of every entry, in no order; reads no entry."""
        with contextlib.suppress(OSError):
            for shard in os.listdir(self._programs):  # noqa: PTH208
                with contextlib.suppress(OSError), os.scandir(f"{self._prefix}{shard}") as found:
                    for item in found:
                        if item.name.endswith(".bin"):
                            with contextlib.suppress(OSError):  # another process removed it
                                status = item.stat(follow_symlinks=False)
                                yield Use(status.st_mtime, status.st_size, item.path)

    def _find(self, digest: str) -> Path | None:
        """The file of an entry, under whatever name it was saved."""
        with contextlib.suppress(OSError), os.scandir(f"{self._prefix}{digest[:3]}") as found:
            for item in found:
                if item.name.endswith(f"-{digest}.bin"):
                    return Path(item.path)
        return None

    # --- removing the folder

    def remove(self) -> Removed:
        """Remove everything of ours in the folder, and the folder itself unless something else is in it.

        Locks that other processes hold stay, and so do the foreign cache folder while a process holds it, and what cannot be
        removed.
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
        for part in ("programs", "names", _OLD_DIARY, "set-aside", "tmp"):
            remove_all(self.path / part, left, count_entry if part == "programs" else None)
        try:
            self.manifest.remove()
        except OSError as error:
            left[str(error.filename)] = error.strerror or str(error)
        with contextlib.suppress(OSError):
            self.path.rmdir()
        return Removed(number, size, tuple(f"{path}: {reason}" for path, reason in left.items()), foreign_held=not idle)

    def _remove_idle_locks(self) -> None:
        folder = self.path / "locks"
        with contextlib.suppress(OSError):
            for path in list(folder.iterdir()):
                with contextlib.suppress(LockUnavailable), FileLock(path).held(0):
                    pass  # releasing a lock removes its file
            folder.rmdir()

    def lock(self, digest: str) -> FileLock:
        """The lock under which one process compiles a key."""
        return FileLock(self.path / "locks" / f"{digest}.lock")


def _note_use(path: str, used: float) -> None:
    now = time.time()
    if not -REFRESH_SECONDS < now - used < REFRESH_SECONDS:
        follow = os.utime not in os.supports_follow_symlinks  # Windows cannot set the time of a link itself
        with contextlib.suppress(OSError):  # a read-only cache can be read all the same
            os.utime(path, (now, now), follow_symlinks=follow)


def _totals(uses: Iterable[Use]) -> tuple[int, int]:
    sizes = [use.nbytes for use in uses]
    return len(sizes), sum(sizes)
