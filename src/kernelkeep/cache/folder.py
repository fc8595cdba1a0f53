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

The diary is what makes pruning cheap. Lines are only ever added at the end, in order of time; the least recently used
entry is the first line whose file has not been used since. So pruning reads from the oldest line on and stops when it is
done, however many entries there are. An entry's last use is its file's modification time, refreshed at most twice a day.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import stat
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from . import entry as entries
from .entry import Damaged, Entry, Facts
from .single_flight import FileLock, LockUnavailable

__all__ = ["GpuFolder", "Stored", "slug"]

_REFRESH_SECONDS = 12 * 3600.0
_LOCK_SECONDS = 10.0
_KEPT_ASIDE = 20
_PARTS = ("programs", "names", "diary", "driver", "set-aside", "tmp", "locks")
_STALE_TEMPORARY_SECONDS = 3600.0
_FILE = re.compile(r"(?P<name>.+)-(?P<digest>[0-9a-f]{64})\.bin\Z")


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
        self._diary = path / "diary"
        self._aside = path / "set-aside"
        self._tmp = path / "tmp"
        self._manifest = path / "manifest.json"
        self._lock_path = path / "locks" / "folder.lock"

    # --- the folder itself

    def prepare(self, facts: dict[str, Any]) -> None:
        """Create the folder, or note that it is in use; clear away what killed writers left."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self._programs, self._tmp):
            _make_folder(folder)
        now = time.time()
        with self._locked():
            manifest = self.manifest()
            lost = (
                not {"entries", "bytes"} <= manifest.keys()
            )  # a new folder, or one whose manifest was deleted or damaged
            used = manifest.get("last_used")
            recent = isinstance(used, int | float) and -_REFRESH_SECONDS < now - used < _REFRESH_SECONDS
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
                self._write_diary()
        return number, total

    def _write_diary(self) -> None:
        """The diary anew, from the entries' last uses: lines may have been lost, and what has none is never pruned."""
        pages: dict[str, list[str]] = {}
        for used, path in sorted((path.lstat().st_mtime, path) for path in self.files()):
            match = _FILE.match(path.name)
            if match:
                pages.setdefault(_day(used), []).append(f"{used:.0f} {match.group('digest')} {path.name}\n")
        for day in self.days():
            _remove(self._diary / f"{day}.done")  # it counts in the old page
            if day not in pages:
                _remove(self._diary / day)
        for day, lines in pages.items():
            _make_folder(self._diary)
            _replace(self._temporary("".join(lines).encode()), self._diary / day)

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
            data, used = _read_regular(path)
        except FileNotFoundError:
            other = self._under_another_name(digest)
            if other is None:
                return None
            path = str(other)
            data, used = _read_regular(path)
        found = entries.decode(data, digest)
        now = time.time()
        if not -_REFRESH_SECONDS < now - used < _REFRESH_SECONDS:
            self._refresh(Path(path), digest, now)
        return found

    def write(self, entry: Entry) -> int:
        """Publish an entry, over an older one of the same key; how many bytes the file has."""
        digest, data = entry.facts.key.digest, entries.encode(entry)
        path = self._under_another_name(digest) or self._path(digest, entry.facts.name)
        _make_folder(path.parent)
        temporary = self._temporary(data)
        try:
            with self._locked():
                before = _size(path)
                self._note(path, digest, time.time())
                if before is None:
                    self._note_name(slug(entry.facts.name), digest)
                self._count_change(entries=int(before is None), size=len(data) - (before or 0))
                _replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        with contextlib.suppress(OSError):  # only for people
            facts = msgspec.json.format(msgspec.json.encode(entry.facts), indent=2)
            _replace(self._temporary(facts), path.with_suffix(".meta"))
        return len(data)

    def _note_name(self, name: str, digest: str) -> None:
        """Write down that a key was saved under a name. Whenever the list has doubled, keys that are gone are dropped."""
        page = self._names / name
        self._append(page, f"{digest}\n")
        lines = (_size(page) or 0) // 65
        if lines >= 64 and lines & (lines - 1) == 0:
            kept = [key for key in self.find_name(name) if key == digest or self._under_another_name(key) is not None]
            _replace(self._temporary("".join(f"{key}\n" for key in kept).encode()), page)

    def set_aside(self, digest: str, name: str) -> None:
        """Move a bad file out of the way, whatever it is, and keep the last few to look at."""
        path = self._path(digest, name)
        if not os.path.lexists(path):
            path = self._under_another_name(digest) or path
        self._move_aside(path)

    def _move_aside(self, path: Path) -> None:
        size = _size(path)
        _make_folder(self._aside)
        with contextlib.suppress(FileNotFoundError):  # another process was first
            path.rename(self._aside / f"{path.stem[:120]}.{os.urandom(4).hex()}")
            with contextlib.suppress(OSError, LockUnavailable), self._locked():
                self._count_change(entries=-1, size=-(size or 0))
        path.with_suffix(".meta").unlink(missing_ok=True)
        kept = sorted(self._aside.iterdir(), key=lambda found: found.lstat().st_mtime)
        for old in kept[:-_KEPT_ASIDE]:
            _remove(old)

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
        match = _FILE.match(path.name)
        digest = match.group("digest") if match else ""
        try:
            data, used = _read_regular(path)
            found = entries.decode(data, digest)
            return Stored(path, digest, len(data), used, found.facts)
        except Damaged as damage:
            return Stored(path, digest, _size(path) or 0, 0.0, None, str(damage))
        except OSError as error:
            return Stored(path, digest, 0, 0.0, None, error.strerror or str(error))

    def repair(self, stored: Stored) -> None:
        """Set a damaged entry aside."""
        self._move_aside(stored.path)

    # --- pruning

    def days(self) -> list[str]:
        """The days the diary has, oldest first."""
        with contextlib.suppress(OSError):
            return sorted(page.name for page in self._diary.iterdir() if page.suffix != ".done")
        return []

    def next_use(self, day: str) -> float | None:
        """When the first entry on a page of the diary was used that pruning has not dealt with; None at the end."""
        with contextlib.suppress(OSError), (self._diary / day).open("rb") as lines:
            lines.seek(_read_number(self._diary / f"{day}.done"))
            for line in lines:
                return _noted(line)
        return None

    def prune_day(
        self, day: str, before: float | None, excess_bytes: int | None, until: float = math.inf
    ) -> tuple[int, int]:
        """Remove what a page of the diary lists, oldest first: not used since `before`, or until `excess_bytes` are gone.

        Lines later than `until` are left alone. Returns how many entries and bytes went. How far it got is written
        down, so that no line is read twice.
        """
        removed = freed = 0
        page, done = self._diary / day, self._diary / f"{day}.done"
        with self._locked():
            at = _read_number(done)
            finished = True
            try:
                with page.open("rb") as lines:
                    lines.seek(at)
                    for line in lines:
                        enough = before is None and (excess_bytes is None or freed >= excess_bytes)
                        if enough or _noted(line) > until:
                            finished = False
                            break
                        verdict, size = self._prune_line(line.decode("utf-8", "replace").rstrip("\n"), before)
                        if verdict == "keep":  # and what comes after is younger still
                            finished = False
                            break
                        at += len(line)
                        if verdict == "removed":
                            removed, freed = removed + 1, freed + size
            except FileNotFoundError:
                pass
            if removed:
                self._count_change(entries=-removed, size=-freed)
            if finished and day < _day(time.time()):
                page.unlink(missing_ok=True)
                done.unlink(missing_ok=True)
            else:
                _replace(self._temporary(str(at).encode()), done)
        return removed, freed

    def _prune_line(self, line: str, before: float | None) -> tuple[str, int]:
        try:
            noted, digest, name = line.split(" ", 2)
            path = self._programs / digest[:3] / name
            if not _FILE.match(name):
                return "forget", 0
            found = path.lstat()
            if found.st_mtime > float(noted) + _REFRESH_SECONDS / 2:
                return "forget", 0  # used since; a later line says so
        except (ValueError, OSError):
            return "forget", 0  # a torn line, or an entry that is gone
        if before is not None and found.st_mtime >= before:
            return "keep", 0
        _remove(path)
        path.with_suffix(".meta").unlink(missing_ok=True)
        return "removed", found.st_size

    def prune_driver(self, before: float) -> int:
        """Remove the driver's cache if nothing in it was used since `before`; the bytes that went."""
        used = self.driver_used()
        if used is None or used >= before:
            return 0
        size = self.driver_bytes()
        _remove(self.driver)
        return size

    def remove(self) -> None:
        """Remove everything of ours in the folder, and the folder itself unless something else is in it."""
        for part in (*_PARTS, "manifest.json"):
            with contextlib.suppress(OSError):
                _remove(self.path / part)
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
                self._note(path, digest, now)

    def _note(self, path: Path, digest: str, now: float) -> None:
        self._append(self._diary / _day(now), f"{now:.0f} {digest} {path.name}\n")

    def _append(self, path: Path, line: str) -> None:
        _make_folder(path.parent)
        if path.is_dir() or path.is_symlink():
            _remove(path)  # not ours, and in the way
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.write(descriptor, line.encode()) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)

    def _count_change(self, *, entries: int, size: int) -> None:
        manifest = self.manifest()
        try:
            manifest["entries"] = max(0, int(manifest.get("entries", 0)) + entries)
            manifest["bytes"] = max(0, int(manifest.get("bytes", 0)) + size)
        except (TypeError, ValueError):
            manifest["entries"], manifest["bytes"] = max(0, entries), max(0, size)
        self._write_manifest(manifest)

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        _replace(self._temporary(json.dumps(manifest, indent=2).encode()), self._manifest)

    def _temporary(self, data: bytes) -> Path:
        _make_folder(self._tmp)
        path = self._tmp / f"{os.getpid()}-{os.urandom(8).hex()}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        return path

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


def _read_regular(path: str | Path) -> tuple[bytes, float]:
    """A regular file's bytes and modification time; a link or folder in its place is `Damaged`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if Path(path).is_symlink():
            raise Damaged("a link stands where it should be") from error
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Damaged("something that is no file stands where it should be")
        if found.st_size > entries.LARGEST_FILE:
            raise Damaged(f"it is far too large, {found.st_size:,} bytes")
        data = os.read(descriptor, found.st_size + 1)
        while len(data) < found.st_size and (more := os.read(descriptor, found.st_size - len(data))):
            data += more
        return data, found.st_mtime
    finally:
        os.close(descriptor)


def _make_folder(path: Path) -> None:
    """A folder inside the cache's own; a file in its place is not ours, and in the way."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        path.unlink()
        path.mkdir(mode=0o700, exist_ok=True)


def _replace(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    except IsADirectoryError:
        _remove(path)  # not ours, and in the way
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _day(moment: float) -> str:
    # A file's time may be anything; four digits of a year are enough.
    return time.strftime("%Y-%m-%d", time.gmtime(min(max(moment, 0.0), 253_402_300_799.0)))


def _noted(line: bytes) -> float:
    """The time in a line of the diary; 0 in a torn one."""
    try:
        return float(line.split(b" ", 1)[0])
    except ValueError:
        return 0.0


def _read_number(path: Path) -> int:
    try:
        return max(0, int(path.read_bytes()))
    except (OSError, ValueError):
        return 0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil  # rarely needed, and start-up counts

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _size(path: Path) -> int | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None


def _machine() -> str:
    """This machine, as far as the folder cares: shared homes hold the folders of several."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        with contextlib.suppress(OSError):
            text = Path(path).read_text(encoding="ascii").strip()
            if text:
                return text[:32]
    return os.uname().nodename
