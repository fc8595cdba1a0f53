"""The file that tuning results are kept in: one sqlite database, in which many processes write at the same time.

Nothing about it ever raises into the user's program. While the file cannot be used (a read-only, full or missing file
system, a newer kernelkeep's file), work goes on in memory, with what could still be read of the file. That is said
once; after a while the file is tried again and gets what was done meanwhile. A damaged file is set aside and a new one
begun.

What is committed outlives a killed process. It is not synced at once: a power cut may take the last few commits.
"""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import stat
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ..cache.disk import CacheWarning
from ..cache.log import say
from ..storage.files import remove
from ..storage.locks import FileLock, LockUnavailable
from .schema import MAX_RECORDS, Damaged, Newer, begun, copy_tables, is_busy, is_damage, prepare

__all__ = ["Database"]

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_BUSY_SECONDS = 15.0
_RETRY_SECONDS = 30.0
_MOUNTS = Path("/proc/self/mounts")
# A write-ahead log needs memory that all its processes share, which the machines on a network do not.
_NETWORKS = ("nfs", "cifs", "smb", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs", "fuse")


class Database:
    """Tables `records` and `choices`, in the file `path`, or in memory where that is None or cannot be used.

    Work is given as a function of a connection, so that it can be done again: another process was in the way, the file
    had to be begun anew, or what was done in memory goes to the file after all.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.problems = 0
        self._file: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None  # of the file that is open
        self._memory: sqlite3.Connection | None = None  # in place of the file, as long as it is not None
        self._unsaved: list[Work[object]] = []
        self._again_at = 0.0
        self._said: set[str] = set()
        _alive.add(self)

    def read(self, work: Work[T]) -> T:
        """Do work that changes nothing."""
        return self._do(work, "BEGIN")

    def write(self, work: Work[T]) -> T:
        """Do work in one transaction."""
        return self._do(work, "BEGIN IMMEDIATE")  # a transaction that begins with reading could not wait for its turn

    @property
    def in_memory(self) -> bool:
        """Whether the file is not used at the moment."""
        return self.path is None or self._memory is not None

    def close(self) -> None:
        """Let go of the file. Using the database again opens it again; what was in memory only is gone."""
        with _one_at_a_time:
            if self._unsaved and self._again_at < float("inf"):
                with contextlib.suppress(sqlite3.Error, OSError):
                    self._save()
            self._unsaved.clear()
            self._disconnect()
            self._forget_memory()

    def trouble(self, kind: str, text: str) -> None:
        """Count a problem; the first of its kind is a warning."""
        with _one_at_a_time:
            self.problems += 1
            first = kind not in self._said
            self._said.add(kind)
        say("tuning", "%s", text)
        if first:
            with contextlib.suppress(Warning):  # where warnings are errors, this one still breaks nothing
                warnings.warn(text, CacheWarning, stacklevel=2)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._disconnect()
            self._forget_memory()

    # --- doing work

    def _do(self, work: Work[T], begin: str) -> T:
        with _one_at_a_time:
            if self.path is not None and (self._memory is None or time.monotonic() >= self._again_at):
                try:
                    if self._memory is not None:
                        self._save()
                    return self._on_file(work, begin)
                except (sqlite3.Error, OSError) as error:
                    self._leave_file(error)
            if self._memory is None:
                self._memory = _in_memory()
            if self.path is not None and begin != "BEGIN":
                self._unsaved.append(work)
                del self._unsaved[:-MAX_RECORDS]
            return _transaction(self._memory, work, begin)

    def _on_file(self, work: Work[T], begin: str) -> T:
        deadline = time.monotonic() + _BUSY_SECONDS
        repaired = False
        while True:
            try:
                return _transaction(self._connected(), work, begin)
            except (Damaged, sqlite3.Error) as error:
                if is_damage(error):
                    if repaired:
                        raise OSError(f"it is damaged again: {error}") from error
                    repaired = True
                    self._set_aside(str(error))
                elif not is_busy(error) or time.monotonic() >= deadline:
                    raise
                else:
                    time.sleep(random.uniform(0.001, 0.03))

    def _save(self) -> None:
        """Do on the file what was done in memory."""
        self._on_file(lambda connection: [work(connection) for work in self._unsaved], "BEGIN IMMEDIATE")
        self._unsaved.clear()
        self._forget_memory()

    def _leave_file(self, error: Exception) -> None:
        """Go on in memory for a while."""
        self._again_at = time.monotonic() + (float("inf") if isinstance(error, Newer) else _RETRY_SECONDS)
        if self._memory is None:
            self._memory = _in_memory()
            if not isinstance(error, Newer):
                self._copy_to(self._memory, busy=is_busy(error))
        self._disconnect()
        reason = getattr(error, "strerror", None) or error
        self.trouble("file", f"tuning results cannot be kept in {self.path} ({reason}); they are kept in memory only")

    def _copy_to(self, memory: sqlite3.Connection, busy: bool) -> None:
        """What can still be read of the file: that of a read-only cache is as good as any."""
        assert self.path is not None
        if (self._file is not None and copy_tables(self._file, memory)) or busy:
            return
        # Where no file can be made beside it, a log-keeping database can only be read as one that nobody changes.
        with contextlib.suppress(sqlite3.Error):
            uri = f"{self.path.absolute().as_uri()}?mode=ro&immutable=1"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as source:
                copy_tables(source, memory)

    def _forget_memory(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    # --- the file

    def _connected(self) -> sqlite3.Connection:
        """The connection to the file; a new one where the file is not the one it was (somebody cleared the cache)."""
        assert self.path is not None
        if self._file is not None and _identity(self.path) == self._identity:
            return self._file
        self._disconnect()
        _make(self.path)
        identity, connection = _identity(self.path), _connect(str(self.path))
        try:
            _choose_journal(connection, network=_on_network(self.path))
            prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._file, self._identity = connection, identity
        return connection

    def _disconnect(self) -> None:
        connection, self._file = self._file, None
        if connection is not None:
            connection.close()

    def _set_aside(self, reason: str) -> None:
        """Move a damaged file out of the way, whatever it is, and keep the last one to look at."""
        assert self.path is not None
        self._disconnect()
        with _locked(self.path):
            if _is_whole(self.path):
                return  # another process was first
            aside = self.path.with_name(f"{self.path.name}.damaged")
            for suffix in ("-wal", "-journal", ""):  # the log belongs to it
                remove(Path(f"{aside}{suffix}"))
                with contextlib.suppress(FileNotFoundError):
                    Path(f"{self.path}{suffix}").rename(f"{aside}{suffix}")
        self.trouble(
            "damage", f"{self.path} is damaged ({reason}); it is set aside as {aside.name}, and a new one is begun"
        )


# --- opening


def _connect(name: str) -> sqlite3.Connection:
    # One connection for all threads, which take turns; transactions begin and end where this module says so.
    return sqlite3.connect(name, timeout=2.0, isolation_level=None, check_same_thread=False)


def _in_memory() -> sqlite3.Connection:
    connection = _connect(":memory:")
    prepare(connection)
    return connection


def _make(path: Path) -> None:
    """An empty file that only its owner reads, unless there is one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not os.path.lexists(path):
        with _locked(path):
            if not os.path.lexists(path):
                for suffix in ("-wal", "-shm", "-journal"):  # left of a file that somebody removed
                    Path(f"{path}{suffix}").unlink(missing_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    # Never opened here once it exists: closing any descriptor of a file drops all locks this process has on it.
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Damaged("something that is no file stands where it should be")


def _choose_journal(connection: sqlite3.Connection, network: bool) -> None:
    wanted = "delete" if network else "wal"
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != wanted:
        try:
            (mode,) = connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()
        except sqlite3.OperationalError as error:
            if is_busy(error) or is_damage(error) or network:
                raise
            (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")


def _is_whole(path: Path) -> bool:
    """Whether a file can be used after all, or none is there; looks at every page of it."""
    try:
        if not os.path.lexists(path):
            return True  # and will be made
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        with contextlib.closing(_connect(str(path))) as connection:
            prepare(connection)
            return bool(connection.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",))
    except (sqlite3.Error, Damaged) as error:
        return not is_damage(error)


def _transaction(connection: sqlite3.Connection, work: Work[T], begin: str) -> T:
    with begun(connection, begin):
        return work(connection)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among processes in making or moving the file; where there are no locks, go on all the same."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    with contextlib.suppress(LockUnavailable):
        lock.acquire(10.0)
    try:
        yield
    finally:
        lock.release()


def _on_network(path: Path) -> bool:
    """Whether other machines may write to the file, too."""
    found = ("", "")
    with contextlib.suppress(OSError, ValueError):
        real = path.parent.resolve()
        for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            _, place, kind, *_ = line.split(" ")
            place = place.replace("\\040", " ")
            if len(place) >= len(found[0]) and real.is_relative_to(place):
                found = (place, kind)
    return found[1].startswith(_NETWORKS)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


# --- forks

# A connection must not cross a fork: the child would believe that it holds the parent's locks on the file, and both
# would write. So none is open while a process forks, and each side opens its own. One lock for all databases: whoever
# forks waits for the end of a transaction of any thread.
_one_at_a_time = threading.RLock()
_alive: weakref.WeakSet[Database] = weakref.WeakSet()


def _before_fork() -> None:
    _one_at_a_time.acquire()
    for database in list(_alive):
        database._disconnect()


def _in_child() -> None:
    for database in list(_alive):
        database._unsaved.clear()  # the parent saves them
    _one_at_a_time.release()


os.register_at_fork(before=_before_fork, after_in_parent=_one_at_a_time.release, after_in_child=_in_child)
