"""The diary of a GPU's folder: which entries were written or used, in order of time, a page for each day.

It is what makes pruning cheap. Lines are only ever added at the end; the least recently used entry is the first line
whose file has not been used since. So pruning reads from the oldest line on and stops when it is done, however many
entries there are, and how far it came is written down beside the page. An entry's last use is its file's modification
time, refreshed at most twice a day, with a line for each refreshing.

Whoever calls this holds the folder's lock.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable
from pathlib import Path

from ..storage.files import append_line, make_folder, remove, replace, write_temporary

__all__ = ["ENTRY_FILE", "REFRESH_SECONDS", "Diary"]

ENTRY_FILE = re.compile(r"(?P<name>.+)-(?P<digest>[0-9a-f]{64})\.bin\Z")
REFRESH_SECONDS = 12 * 3600.0
# A file's time may differ a little from the line's that was written with it.
_SAME_USE_SECONDS = 60.0


class Diary:
    """Pages in `path`, about entries in `programs`."""

    def __init__(self, path: Path, programs: Path, temporary: Path) -> None:
        self._path = path
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
        with contextlib.suppress(OSError), (self._path / day).open("rb") as lines:
            lines.seek(_read_number(self._path / f"{day}.done"))
            for line in lines:
                return _noted(line)
        return None

    def prune(self, day: str, before: float | None, excess_bytes: int | None, until: float) -> tuple[int, int]:
        """Remove the entries of a page, oldest first: not used since `before`, or until `excess_bytes` are gone.

        Lines later than `until` are left alone. Returns how many entries and bytes went.
        """
        removed = freed = 0
        page, done = self._path / day, self._path / f"{day}.done"
        at = _read_number(done)
        finished = True
        with contextlib.suppress(FileNotFoundError), page.open("rb") as lines:
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
            page.unlink(missing_ok=True)
            done.unlink(missing_ok=True)
        else:
            replace(write_temporary(self._temporary, str(at).encode()), done)
        return removed, freed

    def _deal_with(self, line: bytes, before: float | None) -> tuple[str, int]:
        try:
            noted, digest, name = line.decode("utf-8", "replace").rstrip("\n").split(" ", 2)
            path = self._programs / digest[:3] / name
            if not ENTRY_FILE.match(name):
                return "forget", 0
            found = path.lstat()
            if found.st_mtime > float(noted) + _SAME_USE_SECONDS:
                return "forget", 0  # used since; a later line says so
        except (ValueError, OSError):
            return "forget", 0  # a torn line, or an entry that is gone
        if before is not None and found.st_mtime >= before:
            return "keep", 0
        remove(path)
        path.with_suffix(".meta").unlink(missing_ok=True)
        return "removed", found.st_size

    def rewrite(self, files: Iterable[Path]) -> None:
        """The diary anew, from the entries' last uses: lines may have been lost, and what has none is never pruned."""
        pages: dict[str, list[str]] = {}
        for used, path in sorted((path.lstat().st_mtime, path) for path in files):
            match = ENTRY_FILE.match(path.name)
            if match:
                pages.setdefault(_day(used), []).append(f"{used:.0f} {match.group('digest')} {path.name}\n")
        for day in self.days():
            remove(self._path / f"{day}.done")  # it counts in the old page
            if day not in pages:
                remove(self._path / day)
        for day, lines in pages.items():
            make_folder(self._path)
            replace(write_temporary(self._temporary, "".join(lines).encode()), self._path / day)


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
