"""Counts in a JSON file that many processes add to. No process waits for another, and no count is lost.

A process that gets the lock adds to the file. One that does not writes a note beside it, `.<file>.<random>.note`; the next
holder of the lock adds the notes to the file. A holder looks for notes once more after it has released the lock, so a note stays
only while a holder is stopped; `read` counts notes too. The file lists the notes that were added until they are removed, so
a process killed in between counts nothing twice.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from .files import Damaged, publish, read_regular, write_temporary
from .locks import FileLock, LockHeld, LockUnavailable
from .private import Trust

_LARGEST_FILE = 16 << 20
_STALE_SECONDS = 3600.0
_TAKEN = "notes_taken"
_ROUNDS = 100  # of looking for notes again; the next process adds what is left


def number(value: Any) -> float:
    """A number from a file; 0 where it is no number, or too large to be a count."""
    return value if isinstance(value, int | float) and abs(value) < 1e18 else 0


class SharedCounts:
    """The file `path`, guarded by `lock_path`. `complete` adds fields that are missing before the file is changed."""

    def __init__(
        self,
        path: Path,
        lock_path: Path,
        trust: Trust | None = None,
        complete: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self.path = path
        self._lock_path = lock_path
        self._trust = trust
        self._complete = complete
        self._prefix = f".{path.name}."

    def read(self) -> dict[str, Any]:
        """The fields of the file, with the notes beside it added; none where it is missing or damaged."""
        notes = self._read_notes()  # before the file: a note that is added to it meanwhile is listed there
        found = self._load()
        taken = _names(found.pop(_TAKEN, None))
        for name, amounts in notes.items():
            if name not in taken:
                _add(found, amounts)
        return found

    def add(self, amounts: dict[str, float]) -> None:
        """Add to the numbers; `OSError` where neither the file nor a note can be written."""
        if not self._change(lambda found: _add(found, amounts)):
            note = write_temporary(self.path.parent, msgspec.json.encode(amounts), self._prefix)
            publish(note, note.with_name(f"{note.name}.note"))
            with contextlib.suppress(OSError):
                self._change(None)  # the holder may have looked for notes just before ours was there

    def change(self, edit: Callable[[dict[str, Any]], None]) -> bool:
        """Have `edit` change the fields of the file. Returns False and does nothing where somebody else has the lock.

        Raises `OSError` where the file cannot be written.
        """
        return self._change(edit)

    def recount(self, count: Callable[[], dict[str, float]]) -> bool:
        """Set fields to what `count` finds, which includes the notes that were there before. False as in `change`."""

        def edit(found: dict[str, Any]) -> None:
            found.update(count())

        return self._change(edit, forget_notes=True)

    def remove(self) -> None:
        """Remove the file and its notes."""
        for path in (self.path, *(Path(item) for item in self._beside())):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def _change(self, edit: Callable[[dict[str, Any]], None] | None, *, forget_notes: bool = False) -> bool:
        """Under the lock, add the notes and then `edit`. Where the file system has no locks, do it without."""
        done = False
        handled: set[str] = set()
        for _ in range(_ROUNDS):
            lock = FileLock(self._lock_path)
            try:
                lock.acquire(0)
            except LockHeld:
                return done
            except LockUnavailable:  # counts of processes that write at the same moment may be lost
                pass
            try:
                handled |= self._rewrite(edit if not done else None, forget_notes and not done)
                done = True
            finally:
                lock.release()
            if all(not path.endswith(".note") or Path(path).name in handled for path in self._beside()):
                break
        return done

    def _rewrite(self, edit: Callable[[dict[str, Any]], None] | None, forget_notes: bool) -> set[str]:
        notes = self._read_notes()
        if edit is None and not notes:
            return set()
        found = self._load()
        taken = _names(found.pop(_TAKEN, None))
        if self._complete is not None:
            found = self._complete(found)
        if not forget_notes:
            for name, amounts in notes.items():
                if name not in taken:
                    _add(found, amounts)
        if edit is not None:
            edit(found)
        if notes:
            found[_TAKEN] = list(notes)
        temporary = write_temporary(
            self.path.parent, msgspec.json.format(msgspec.json.encode(found), indent=2), self._prefix
        )
        publish(temporary, self.path)
        for name in notes:
            with contextlib.suppress(OSError):
                self.path.with_name(name).unlink()
        return set(notes)

    def _load(self) -> dict[str, Any]:
        try:
            found = msgspec.json.decode(read_regular(self.path, self._trust, _LARGEST_FILE)[0])
        except (OSError, ValueError, RecursionError, Damaged):
            return {}
        return found if isinstance(found, dict) else {}

    def _read_notes(self) -> dict[str, dict[str, float]]:
        notes: dict[str, dict[str, float]] = {}
        for path in self._beside():
            name = os.path.basename(path)  # noqa: PTH119
            if name.endswith(".note"):
                with contextlib.suppress(OSError):
                    notes[name] = self._read_note(path)
            else:
                with contextlib.suppress(OSError):  # a killed writer left it
                    if time.time() - os.lstat(path).st_mtime > _STALE_SECONDS:
                        os.unlink(path)  # noqa: PTH108
        return notes

    def _read_note(self, path: str) -> dict[str, float]:
        try:
            found = msgspec.json.decode(read_regular(path, self._trust, _LARGEST_FILE)[0])
        except (ValueError, RecursionError, Damaged):
            return {}
        return found if isinstance(found, dict) else {}

    def _beside(self) -> Iterator[str]:
        with contextlib.suppress(OSError), os.scandir(self.path.parent) as items:
            lock = self._lock_path.name
            yield from [item.path for item in items if item.name.startswith(self._prefix) and item.name != lock]


def _add(found: dict[str, Any], amounts: dict[str, float]) -> None:
    for name, amount in amounts.items():
        total = number(found.get(name)) + number(amount)
        found[name] = int(total) if isinstance(total, int) or total.is_integer() else round(total, 6)


def _names(value: Any) -> frozenset[str]:
    return frozenset(name for name in value if isinstance(name, str)) if isinstance(value, list) else frozenset()
