"""The sqlite file of tuning results: made for its owner alone, opened with care, checked, and moved aside.

Nothing here opens the file itself once it exists: closing any descriptor of it would drop all locks that sqlite has on it in
this process. So it is looked at by its path. Nobody else can change what lies there: the folder is private.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ..storage.files import remove
from ..storage.locks import FileLock, LockUnavailable
from ..storage.private import NotPrivate, Trust, make_private_folder
from .schema import DamagedDatabase, Newer, check_pages, is_busy, prepare, probe_writing

__all__ = ["connect", "identity_of", "in_memory", "locked", "move_aside", "open_file"]

Identity = tuple[int, int]

_BESIDE = ("-wal", "-shm", "-journal")  # sqlite's own files
_PRIVATE_FILE = 0o600
# Files up to this size are checked page by page when they are opened; that takes 3 ms for 500 records (0.5 MB).
_CHECKED_BYTES = 1 << 20
_MOUNTS = Path("/proc/self/mounts")
# A write-ahead log needs memory that all its processes share, which the machines on a network do not.
_NETWORKS = ("nfs", "cifs", "smb", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs", "fuse")
# Trouble with the machine, not with the file.
_OUTSIDE = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PROTOCOL,
)


def connect(name: str, uri: bool = False) -> sqlite3.Connection:
    """A connection for all threads, which take turns; transactions begin and end where the database says so."""
    connection = sqlite3.connect(name, timeout=2.0, isolation_level=None, check_same_thread=False, uri=uri)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # a damaged text is no error
    return connection


def in_memory() -> sqlite3.Connection:
    """An empty database in memory."""
    connection = connect(":memory:")
    prepare(connection)
    return connection


def open_file(path: Path, trust: Trust) -> tuple[sqlite3.Connection, Identity | None]:
    """A connection to the file, which is made where there is none, and which file that is.

    `NotPrivate` where another user could have written it; `DamagedDatabase` where it is none of ours.
    """
    _make(path, trust)
    identity, connection = identity_of(path), connect(str(path))
    try:
        _choose_journal(connection, network=_on_network(path))
        prepare(connection)
        if path.stat().st_size <= _CHECKED_BYTES:
            check_pages(connection)
    except BaseException:
        connection.close()
        raise
    return connection, identity


def identity_of(path: Path) -> Identity | None:
    """Which file this is; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _make(path: Path, trust: Trust) -> None:
    """An empty file that only its owner reads, unless there is one."""
    make_private_folder(path.parent.absolute(), trust)
    if not os.path.lexists(path):
        with locked(path):
            if not os.path.lexists(path):
                for suffix in _BESIDE:  # left of a file that somebody removed
                    remove(Path(f"{path}{suffix}"))
                descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE_FILE)
                try:
                    os.fchmod(descriptor, _PRIVATE_FILE)  # whatever the umask is; sqlite's own files follow it
                finally:
                    os.close(descriptor)
    for suffix in ("", *_BESIDE):
        _check(Path(f"{path}{suffix}"), trust)


def _check(path: Path, trust: Trust) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise DamagedDatabase("something that is no file stands where it should be")
    objection = trust.objection(found)
    if objection is not None:
        raise NotPrivate(f"{path.name} {objection}", "if what it holds is yours, make it so, else remove it")
    if stat.S_IMODE(found.st_mode) != _PRIVATE_FILE and found.st_uid == os.geteuid():
        with contextlib.suppress(OSError):
            path.chmod(_PRIVATE_FILE)


def _choose_journal(connection: sqlite3.Connection, network: bool) -> None:
    wanted = "delete" if network else "wal"
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != wanted:
        try:
            (mode,) = connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()
        except sqlite3.OperationalError as error:
            if is_busy(error) or _is_damage(error) or network:
                raise
            (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")


def _is_damage(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


# --- damage


def move_aside(path: Path) -> Path | None:
    """Rename a damaged file, whatever it is, with the logs that belong to it; to what. None where nothing is wrong with it.

    The last one that was moved aside is kept to look at.
    """
    if _is_whole(path):
        return None
    aside = path.with_name(f"{path.name}.damaged")
    for suffix in (*_BESIDE, ""):
        remove(Path(f"{aside}{suffix}"))
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{suffix}").rename(f"{aside}{suffix}")
    remove(Path(f"{aside}-shm"))
    return aside


def _is_whole(path: Path) -> bool:
    """Whether a file can be used after all, or none is there; looks at every page of it."""
    if not os.path.lexists(path):
        return True  # and will be made
    for suffix in ("", *_BESIDE):
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(Path(f"{path}{suffix}").lstat().st_mode):
                return False
    try:
        with contextlib.closing(connect(str(path))) as connection:
            prepare(connection)
            check_pages(connection)
            probe_writing(connection)
            return True
    except Exception as error:
        return not _blames_the_file(error, path)


def _blames_the_file(error: Exception, path: Path) -> bool:
    """Whether what went wrong in checking it is the file's own fault. A healthy one is never set aside for what is not."""
    if isinstance(error, Newer | MemoryError) or is_busy(error):
        return False
    code = getattr(error, "sqlite_errorcode", 0)
    if code == sqlite3.SQLITE_IOERR_SHORT_READ:  # cut off
        return True
    if code & 0xFF in _OUTSIDE:
        return False
    if code & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
        # A header that was changed may forbid writing; or the file system does.
        return os.access(path, os.R_OK | os.W_OK) and os.access(path.parent, os.W_OK)
    return not isinstance(error, OSError)


# --- around it


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
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
