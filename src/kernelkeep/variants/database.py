"""The database of tuning results: one sqlite file, to which many processes write at the same time.

A problem with the file never raises into the user's program. While the file cannot be used (a read-only, full or missing
file system, a newer kernelkeep's file, one that another user could have written), work continues in memory, with what could
still be read of the file. There is one warning; after a while the file is tried again and gets what was done meanwhile. A
damaged file is moved aside and a new one created, however the damage shows: as an error of sqlite, as text that is not
UTF-8, as a value of another type, or as a page that does not fit the others. Damage that leaves a row readable is not noticed.

What is committed survives a killed process. It is not synced at once: a power cut may lose the last few commits.
"""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ..cache.log import log
from ..errors import CacheWarning
from ..platforms import system
from ..storage.private import NotPrivate, Trust, default_trust
from ..weak_set import WeakSet
from .database_file import connect, identity_of, in_memory, locked, move_aside, open_file
from .schema import MAX_RECORDS, copy_tables, transaction
from .sqlite_errors import NewerDatabase, is_busy, may_be_damage

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_BUSY_SECONDS = 15.0
_RETRY_SECONDS = 30.0


class Database:
    """Tables `records` and `choices`, in the file `path`, or in memory where that is None or cannot be used.

    Work is a function of a connection, so that it can be repeated: because another process was in the way, because the
    file was replaced, or because what was done in memory goes to the file later.
    """

    def __init__(self, path: Path | None, trust: Trust | None = None) -> None:
        self.path = path
        self._trust = trust or default_trust()
        self.problems = 0
        self.connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None  # of the open file
        self._memory: sqlite3.Connection | None = None  # used instead of the file while it is not None
        self._unsaved: list[Work[object]] = []
        self._retry_at = 0.0
        self._warned: set[str] = set()
        _alive.add(self)

    def read(self, work: Work[T]) -> T:
        """Do work that changes nothing."""
        return self._do(work, "BEGIN")

    def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""
        return self._do(work, "BEGIN IMMEDIATE")  # one that begins with reading could not wait for the lock

    @property
    def in_memory(self) -> bool:
        """Whether the file is not in use at the moment."""
        return self.path is None or self._memory is not None

    def close(self) -> None:
        """Close the file. The next use opens it again; what was in memory only is lost."""
        with _lock:
            if self._unsaved and self._retry_at < float("inf"):
                with contextlib.suppress(Exception):  # closing never raises
                    self._save()
            self._unsaved.clear()
            self._disconnect()
            self._forget_memory()

    def warn(self, kind: str, text: str) -> None:
        """Count a problem; the first of its kind is a warning."""
        with _lock:
            self.problems += 1
            first = kind not in self._warned
            self._warned.add(kind)
        log("tuning", "%s", text)
        if first:
            with contextlib.suppress(Warning):  # where warnings are errors, this one still must not raise
                warnings.warn(text, CacheWarning, stacklevel=2)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._disconnect()
            self._forget_memory()

    # --- doing work

    def _do(self, work: Work[T], begin: str) -> T:
        with _lock:
            if self.path is not None and (self._memory is None or time.monotonic() >= self._retry_at):
                try:
                    if self._memory is not None:
                        self._save()
                    return self._on_file(work, begin)
                except (sqlite3.Error, OSError) as error:
                    self._leave_file(error)
            if self._memory is None:
                self._memory = in_memory()
            if self.path is not None and begin != "BEGIN":
                self._unsaved.append(work)
                del self._unsaved[:-MAX_RECORDS]
            with transaction(self._memory, begin):
                return work(self._memory)

    def _on_file(self, work: Work[T], begin: str) -> T:
        deadline = time.monotonic() + _BUSY_SECONDS
        repaired = False
        while True:
            try:
                connection = self._connected()
                with transaction(connection, begin):
                    result = work(connection)
                if begin == "BEGIN" or self._is_current():
                    return result  # else another process moved the file aside, and the work goes into the new one
            except Exception as error:
                if may_be_damage(error):
                    if repaired:
                        raise OSError(f"it is damaged again: {_in_one_line(error)}") from error
                    repaired = True
                    self._move_aside(_in_one_line(error))
                elif not is_busy(error) or time.monotonic() >= deadline:
                    raise
                else:
                    time.sleep(random.uniform(0.001, 0.03))

    def _save(self) -> None:
        """Repeat on the file what was done in memory."""
        self._on_file(lambda connection: [work(connection) for work in self._unsaved], "BEGIN IMMEDIATE")
        self._unsaved.clear()
        self._forget_memory()

    def _leave_file(self, error: Exception) -> None:
        """Continue in memory for a while."""
        self._retry_at = time.monotonic() + (float("inf") if isinstance(error, NewerDatabase) else _RETRY_SECONDS)
        if self._memory is None:
            self._memory = in_memory()
            if not isinstance(error, NewerDatabase | NotPrivate):
                self._copy_to(self._memory, busy=is_busy(error))
        self._disconnect()
        reason = getattr(error, "strerror", None) or error
        self.warn("file", f"tuning results cannot be stored in {self.path} ({reason}); they are kept in memory only")

    def _copy_to(self, memory: sqlite3.Connection, busy: bool) -> None:
        """Copy what can still be read of the file, such as that of a read-only cache."""
        assert self.path is not None
        if (self.connection is not None and copy_tables(self.connection, memory)) or busy:
            return
        # Where sqlite cannot create its log beside it, the file can only be opened as one that nobody changes.
        with contextlib.suppress(Exception):  # it may be damaged as well
            uri = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
            with contextlib.closing(connect(uri, uri=True)) as source:
                copy_tables(source, memory)

    def _forget_memory(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    # --- the file

    def _connected(self) -> sqlite3.Connection:
        """The connection to the file; a new one where the file was replaced or removed."""
        assert self.path is not None
        if self.connection is not None and self._is_current():
            return self.connection
        self._disconnect()
        self.connection, self._identity = open_file(self.path, self._trust)
        return self.connection

    def _is_current(self) -> bool:
        """Whether the path still leads to the open file."""
        assert self.path is not None
        return identity_of(self.path) == self._identity

    def _disconnect(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _move_aside(self, reason: str) -> None:
        """Move a damaged file aside; the last one is kept for inspection."""
        assert self.path is not None
        self._disconnect()
        with locked(self.path):
            aside = move_aside(self.path)
        if aside is None:
            return  # another process did it
        self.warn(
            "damage", f"{self.path} is damaged ({reason}); it is moved aside as {aside.name}, and a new one is created"
        )


def _in_one_line(error: Exception) -> str:
    """An error's text in one printable line: sqlite quotes what it finds in the file."""
    if isinstance(error, UnicodeError):
        return "it holds text that is not UTF-8"
    text = " ".join(str(error).split())[:200] or type(error).__name__
    return "".join(letter if letter.isprintable() else "?" for letter in text)


# --- forks

# A connection must not cross a fork: the child would believe that it holds the parent's locks on the file, and both
# would write. So all are closed before a fork, and each side opens its own. One lock serves all databases, so that a fork
# waits for the end of any thread's transaction.
_lock = threading.RLock()
_alive: WeakSet[Database] = WeakSet()


def _before_fork() -> None:
    _lock.acquire()
    for database in list(_alive):
        database._disconnect()


def _in_child() -> None:
    for database in list(_alive):
        database._unsaved.clear()  # the parent saves them
    _lock.release()


system.on_fork(before=_before_fork, after_in_parent=_lock.release, after_in_child=_in_child)
