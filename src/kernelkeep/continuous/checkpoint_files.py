"""The files of one checkpoint: `heat.kkpt`, and the older `heat.kkpt.1`, `heat.kkpt.2`, …

A new file is written beside them and renamed when it is complete and on the disk. The one before it gets its second name
first, so `heat.kkpt` is there at every moment, whoever is killed. Writers of one name take turns by a lock file, which the
kernel lets go of when its holder dies; whoever holds it may clear away what dead writers left. Where a file system has no
locks, files an hour old are taken for left over.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..errors import ArgumentError
from ..storage.files import Damaged, open_regular
from ..storage.locks import FileLock, LockUnavailable
from .checkpoint_format import MAGIC, NewerFormat, read_prefix, read_start

__all__ = ["SET_ASIDE", "candidates", "publish", "real_path"]

SET_ASIDE = ".set-aside"
_LOCK_SECONDS = 60.0
_STALE_SECONDS = 3600.0


def real_path(path: str | os.PathLike[str]) -> Path:
    """Where the file really is: a link is followed, so that the files lie beside the one it leads to."""
    try:
        named = os.fspath(path)
        found = Path(os.path.realpath(named))
        if not named or not found.name or named.endswith(os.sep):
            raise ValueError("it names no file")
    except (TypeError, ValueError, RuntimeError, OSError) as error:
        raise ArgumentError(f"{path!r} cannot be a checkpoint: {error}") from None
    return found


def candidates(path: Path) -> list[Path]:
    """The files of a checkpoint: its own, whether or not it is there, then the older ones that are."""
    return [path, *(path.with_name(f"{path.name}.{number}") for number in _numbers(path))]


def _numbers(path: Path) -> list[int]:
    pattern = re.compile(re.escape(path.name) + r"\.([1-9][0-9]{0,8})")
    found: list[int] = []
    with contextlib.suppress(OSError):
        found = [int(match.group(1)) for name in os.listdir(path.parent) if (match := pattern.fullmatch(name))]  # noqa: PTH208
    return sorted(found)


def publish(path: Path, keep: int, write: Callable[[BinaryIO, int], None]) -> None:
    """Have `write(file, sequence)` fill a new file and put it in the place of the last one, which becomes older.

    Raises `OSError`, and whatever `write` raises; then the files that were there are as they were.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    if path.is_dir():
        raise IsADirectoryError("it is a folder")
    with _alone(path) as locked:
        _clear_leftovers(path, all_of_them=locked)
        sequence = 1 + max((_sequence(file) for file in candidates(path)), default=0)
        temporary = _temporary(path)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with os.fdopen(descriptor, "wb") as file:
                write(file, sequence)
                file.flush()
                os.fsync(file.fileno())
            _make_room(path, keep)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
        _drop(path, keep)


def _make_room(path: Path, keep: int) -> None:
    """Number the last file among the older ones, if it is worth keeping; it keeps its own name as well."""
    kind = _kind(path)
    if kind == "foreign":  # not ours to overwrite: somebody named the wrong file
        path.replace(path.with_name(path.name + SET_ASIDE))
    first = path.with_name(f"{path.name}.1")
    if kind != "whole" or keep < 2 or (first.exists() and first.samefile(path)):
        return  # or it has its second name already, from a writer that was killed after giving it
    link = _temporary(path)
    linked = True
    try:
        os.link(path, link)
    except OSError:  # a file system without links: for a moment the older name will be the only one
        linked = False
    try:
        for number in range(keep - 2, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                path.with_name(f"{path.name}.{number}").replace(path.with_name(f"{path.name}.{number + 1}"))
        (link if linked else path).replace(first)
    except BaseException:
        link.unlink(missing_ok=True)
        raise


def _kind(path: Path) -> str:
    """ "whole" by its first and last bytes, "damaged", "foreign" or "missing"."""
    try:
        with open_regular(path) as file:
            start = file.read(len(MAGIC))
            if start and start != MAGIC:
                return "foreign"
            read_start(file, to_the_end=True)
            return "whole"
    except FileNotFoundError:
        return "missing"
    except NewerFormat:
        return "whole"  # for all that can be told
    except Damaged:
        return "damaged"


def _sequence(path: Path) -> int:
    with contextlib.suppress(OSError, Damaged), open_regular(path) as file:
        return read_prefix(file).sequence
    return 0


def _drop(path: Path, keep: int) -> None:
    for number in _numbers(path):
        older = path.with_name(f"{path.name}.{number}")
        with contextlib.suppress(OSError):
            if number >= keep and _kind(older) in ("whole", "damaged"):
                older.unlink()


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(8).hex()}.tmp")


def _clear_leftovers(path: Path, *, all_of_them: bool) -> None:
    pattern = re.compile(r"\." + re.escape(path.name) + r"\.[0-9]+-[0-9a-f]{16}\.tmp")
    stale = time.time() - _STALE_SECONDS
    for leftover in path.parent.iterdir():
        with contextlib.suppress(OSError):
            if pattern.fullmatch(leftover.name) and (all_of_them or leftover.lstat().st_mtime < stale):
                leftover.unlink()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[bool]:
    """Other writers of this checkpoint kept out; False where that cannot be had."""
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(_LOCK_SECONDS)
    except LockUnavailable:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot; the file itself is on the disk
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
