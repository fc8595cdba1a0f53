"""The sqlite file of tuning results: created for its owner alone, opened, checked, and moved aside when damaged.

Nothing here opens the file itself once it exists, because closing any descriptor of it would drop all locks that sqlite has
on it in this process. It is examined by its path instead; nobody else can replace it, because the folder is private.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ..platforms import system
from ..storage.files import create_private, move, remove
from ..storage.locks import FileLock, LockUnavailable
from ..storage.private import NotPrivate, Trust, make_private_folder
from .schema import check_pages, prepare, probe_writing
from .sqlite_errors import DamagedDatabase, is_busy, is_corrupt, is_file_at_fault

Identity = tuple[int, int]

_SIDE_FILES = ("-wal", "-shm", "-journal")  # that sqlite makes
_PRIVATE_FILE = 0o600
# Smaller files are checked page by page when they are opened; that takes 3 ms for 500 records (0.5 MB).
_CHECKED_BYTES = 1 << 20
_MOUNTS = Path("/proc/self/mounts")
# A write-ahead log needs memory that all its processes share, which the machines on a network do not.
_NETWORKS = ("nfs", "cifs", "smb", "afs", "9p", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs", "fuse")


def connect(name: str, uri: bool = False) -> sqlite3.Connection:
    """A connection that all threads share by taking turns; transactions begin and end explicitly."""
    connection = sqlite3.connect(name, timeout=2.0, isolation_level=None, check_same_thread=False, uri=uri)
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # a damaged text must not raise
    return connection


def in_memory() -> sqlite3.Connection:
    """An empty database in memory."""
    connection = connect(":memory:")
    prepare(connection)
    return connection


def open_file(path: Path, trust: Trust) -> tuple[sqlite3.Connection, Identity | None]:
    """Open the file, or create it; returns the connection and the file's identity.

    Raises `NotPrivate` where another user could have written it, and `DamagedDatabase` where it is not a regular file.
    """
    make_private_folder(path.parent.absolute(), trust)
    # Nobody moves the file aside meanwhile. A connection to the moved file would find the new file's log by its name, and
    # carry what others commit there into the moved file.
    with locked(path):
        _create(path, trust)
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
    """The device and inode of a file; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _create(path: Path, trust: Trust) -> None:
    """Create an empty file that only its owner can read, unless there is one. The lock is held."""
    if not os.path.lexists(path):
        for suffix in _SIDE_FILES:  # of a file that somebody removed
            remove(Path(f"{path}{suffix}"))
        with contextlib.suppress(FileExistsError):  # where locks do not work
            os.close(create_private(path))  # sqlite's own files get its permissions
    for suffix in ("", *_SIDE_FILES):
        _check(Path(f"{path}{suffix}"), trust)


def _check(path: Path, trust: Trust) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode):
        raise DamagedDatabase("its path is not a regular file")
    objection = trust.objection(found)
    if objection is not None:
        raise NotPrivate(
            f"{path.name} {objection}", "change its owner or mode if its contents are yours, else remove it"
        )
    if stat.S_IMODE(found.st_mode) != _PRIVATE_FILE and found.st_uid == system.user_number():
        with contextlib.suppress(OSError):
            path.chmod(_PRIVATE_FILE)


def _choose_journal(connection: sqlite3.Connection, network: bool) -> None:
    wanted = "delete" if network else "wal"
    (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != wanted:
        try:
            (mode,) = connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()
        except sqlite3.OperationalError as error:
            if is_busy(error) or is_corrupt(error) or network:
                raise
            (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")


# --- damage


def move_aside(path: Path) -> Path | None:
    """Rename a damaged file and its logs; returns the new path, or None where nothing is wrong with the file.

    The last one that was moved aside is kept for inspection.
    """
    if _is_whole(path):
        return None
    aside = path.with_name(f"{path.name}.damaged")
    for suffix in (*_SIDE_FILES, ""):
        remove(Path(f"{aside}{suffix}"))
        move(Path(f"{path}{suffix}"), Path(f"{aside}{suffix}"))
    remove(Path(f"{aside}-shm"))
    return aside


def _is_whole(path: Path) -> bool:
    """Whether every page of a file is intact, or there is no file."""
    if not os.path.lexists(path):
        return True
    for suffix in ("", *_SIDE_FILES):
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
        return not is_file_at_fault(error, path)


# --- locks and file systems


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock for opening, creating or moving the file; where locks do not work, continue without."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    with contextlib.suppress(LockUnavailable):
        lock.acquire(10.0)
    try:
        yield
    finally:
        lock.release()


def _on_network(path: Path) -> bool:
    """Whether the file is on a network file system, where other machines may write to it."""
    found = ("", "")
    with contextlib.suppress(OSError, ValueError):
        real = path.parent.resolve()
        for line in _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            _, place, kind, *_ = line.split(" ")
            place = place.replace("\\040", " ")
            if len(place) >= len(found[0]) and real.is_relative_to(place):
                found = (place, kind)
    return found[1].startswith(_NETWORKS)
