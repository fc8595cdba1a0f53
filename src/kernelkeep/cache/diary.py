"""The diary of a GPU's folder: which entries were written or used, in order of time, a page for each day.

It is what makes pruning cheap. Lines are only ever added at the end; the least recently used entry is the first line
whose file has not been used since. So pruning reads from the oldest line on and stops when it is done, however many
entries there are, and how far it came is written down beside the page. An entry's last use is its file's modification
time, refreshed at most twice a day, with a line for each refreshing.

Lines are added without a lock, and pages are pruned without one: an entry is counted by whoever really removed it.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..storage.files import (
    Damaged,
    append_line,
    carry_over,
    make_folder,
    open_regular,
    read_regular,
    remove,
    replace,
    size_of,
    write_temporary,
)
from ..storage.private import Trust

__all__ = ["ENTRY_FILE", "REFRESH_SECONDS", "Diary"]

ENTRY_FILE = re.compile(r"(?P<name>.+)-(?P<digest>[0-9a-f]{64})\.bin\Z")
REFRESH_SECONDS = 12 * 3600.0
# A file's time may differ a little from the line's that was written with it.
_SAME_USE_SECONDS = 60.0


class Diary:
    """Pages in `path`, about entries in `programs`."""

    def __init__(self, path: Path, programs: Path, temporary: Path, trust: Trust) -> None:
        self._path = path
        self._trust = trust
        self._programs = programs
        self._temporary = temporary

    def note(self, name: str, digest: str, now: float) -> None:
        """Write down that the entry file `name` was written or used."""
        append_line(self._path / _day(now), f"{now:.0f} {digest} {name}\n")

    def days(self) -> list[str]:
        """The days there are pages for, oldest first."""
        with contextlib.suppress(OSError):
            return sorted(page.name for page in self._path.iterdir() if page.suffix != ".done")
        return []

    def next_use(self, day: str) -> float | None:
        """The time of the first line of a page that pruning has not dealt with; None at the end."""
        with contextlib.suppress(OSError, Damaged), self._open(day) as lines:
            lines.seek(self._done(day))
            for line in lines:
                return _noted(line)
        return None

    def prune(self, day: str, before: float | None, excess_bytes: int | None, until: float) -> tuple[int, int]:
        """Remove the entries of a page, oldest first: not used since `before`, or until `excess_bytes` are gone.

        Lines later than `until` are left alone. Returns how many entries and bytes went.
        """
        removed = freed = 0
        page, done = self._path / day, self._path / f"{day}.done"
        at = self._done(day)
        finished, identity = True, None
        with contextlib.suppress(FileNotFoundError, Damaged), self._open(day) as lines:
            identity = os.fstat(lines.fileno()).st_ino
            lines.seek(at)
            for line in lines:
                enough = before is None and (excess_bytes is None or freed >= excess_bytes)
                verdict, size = ("keep", 0) if enough or _noted(line) > until else self._deal_with(line, before)
                if verdict == "keep":  # and what comes after is younger still
                    finished = False
                    break
                at += len(line)
                if verdict == "removed":
                    removed, freed = removed + 1, freed + size
        if finished and day < _day(time.time()):
            remove(page)
            done.unlink(missing_ok=True)
        elif identity is not None and _inode(page) == identity:  # else another process wrote the page anew
            replace(write_temporary(self._temporary, str(at).encode()), done)
        return removed, freed

    def _open(self, day: str) -> BinaryIO:
        return open_regular(self._path / day, follow_links=False, trust=self._trust)

    def _done(self, day: str) -> int:
        """How far pruning has come in a page."""
        try:
            return max(0, int(read_regular(self._path / f"{day}.done", self._trust, 100)[0]))
        except (OSError, ValueError, Damaged):
            return 0

    def _deal_with(self, line: bytes, before: float | None) -> tuple[str, int]:
        try:
            noted, digest, name = line.decode("utf-8", "replace").rstrip("\n").split(" ", 2)
            match = ENTRY_FILE.match(name)
            if match is None or match.group("digest") != digest or "/" in name:
                return "forget", 0
            path = self._programs / digest[:3] / name
            found = path.lstat()
            if found.st_mtime > float(noted) + _SAME_USE_SECONDS:
                return "forget", 0  # used since; a later line says so
        except (ValueError, OSError):
            return "forget", 0  # a torn line, or an entry that is gone
        if before is not None and found.st_mtime >= before:
            return "keep", 0
        try:
            path.unlink()
        except FileNotFoundError:
            return "forget", 0  # another process removed it, and counts it
        except (IsADirectoryError, PermissionError):
            if not path.is_dir():
                raise
            remove(path)
        path.with_suffix(".meta").unlink(missing_ok=True)
        return "removed", found.st_size

    def rewrite(self, files: Callable[[], Iterable[Path]]) -> None:
        """The diary anew, from the entries' last uses: lines may have been lost, and what has none is never pruned.

        What other processes add to a page meanwhile stays.
        """
        sizes = {day: size_of(self._path / day) or 0 for day in self.days()}
        pages: dict[str, list[str]] = {}
        for used, path in sorted(_last_uses(files())):
            match = ENTRY_FILE.match(path.name)
            if match:
                pages.setdefault(_day(used), []).append(f"{used:.0f} {match.group('digest')} {path.name}\n")
        today = _day(time.time())
        for day in self.days():
            remove(self._path / f"{day}.done")  # it counts in the old page
            if day not in pages and day != today:
                remove(self._path / day)
        for day, lines in pages.items():
            make_folder(self._path)
            temporary = write_temporary(self._temporary, "".join(lines).encode())
            carry_over(temporary, self._path / day, sizes.get(day, 0))


def _last_uses(files: Iterable[Path]) -> Iterator[tuple[float, Path]]:
    for path in files:
        with contextlib.suppress(OSError):  # it is gone by now
            yield path.lstat().st_mtime, path


def _inode(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None


def _day(moment: float) -> str:
    # A file's time may be anything; four digits of a year are enough.
    return time.strftime("%Y-%m-%d", time.gmtime(min(max(moment, 0.0), 253_402_300_799.0)))


def _noted(line: bytes) -> float:
    """The time in a line of the diary; 0 in a torn one."""
    try:
        return float(line.split(b" ", 1)[0])
    except ValueError:
        return 0.0
