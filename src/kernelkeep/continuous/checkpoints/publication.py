"""How the files of a checkpoint are replaced: nothing that another wrote is ever overwritten or removed.

A new file is written beside the others and renamed when it is complete and on the disk. The one before it gets its second
name, `heat.kkpt.41` after its sequence number, first; so `heat.kkpt` is there at every moment, whoever is killed. What is in
the way and does not belong to the run is given a name of its own, `heat.kkpt.before-20261115T195238Z`.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from ...storage.files import Damaged, check_destination
from .family import Member, look_at, older_of, older_path

__all__ = ["ASIDE", "publish", "set_aside"]

ASIDE = ".before-"
_STALE_SECONDS = 3600.0


def publish(
    path: Path, lineage: str, keep: int, write: Callable[[BinaryIO, int], None], *, last: int = 0, alone: bool = True
) -> int:
    """Have `write(file, sequence)` fill a new file and put it in the place of the last one, which becomes older.

    The new sequence number is above `last` and those of all files of this lineage; it is returned. `alone` says that no
    other process writes here, so that temporary files are known to be left over. Raises `OSError`, `NotRegular`, and
    whatever `write` raises; then the files that were there are as they were.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    check_destination(path)
    _clear_leftovers(path, all_of_them=alone)
    before = _member(path, lineage)
    older = older_of(path, lineage)
    known = [member.sequence for member in (before, *older) if member is not None]
    sequence = _free_sequence(path, 1 + max((last, *known)))
    temporary = _temporary(path)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            write(file, sequence)
            file.flush()
            os.fsync(file.fileno())
        if before is None:
            _make_way(path)
        elif before.whole and keep > 1:
            with contextlib.suppress(FileExistsError):  # somebody else took the name since: the older ones have to do
                _second_name(path, older_path(path, before.sequence))
        check_destination(path)  # a rename would replace a device that came meanwhile
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    for member in older_of(path, lineage)[keep - 1 :]:
        with contextlib.suppress(OSError):
            member.path.unlink()
    return sequence


def set_aside(path: Path, older: Iterable[Member], *, stays: bool = False) -> Path:
    """Give a checkpoint a name that nothing overwrites, its older files with it; returns that name.

    They belong together under the new name as they did under the old one. With `stays`, the path keeps its name as well,
    until a new file takes its place.
    """
    members = list(older)
    for target in _aside_names(path):
        moves = [(member.path, older_path(target, member.sequence)) for member in members]
        if any(os.path.lexists(new) for _, new in moves):
            continue
        try:
            _second_name(path, target)
        except FileExistsError:
            continue
        except FileNotFoundError:
            pass  # only older ones are there
        for old, new in moves:
            with contextlib.suppress(FileNotFoundError):
                _second_name(old, new)
                _remove_if_same(old, new)
        if not stays:
            _remove_if_same(path, target)
        _sync_folder(path.parent)
        return target
    raise AssertionError("names do not run out")


def _aside_names(path: Path) -> Iterable[Path]:
    name = path.name + ASIDE + time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return (path.with_name(name if number == 1 else f"{name}-{number}") for number in itertools.count(1))


def _member(path: Path, lineage: str) -> Member | None:
    """The file at the path where it belongs to the run."""
    try:
        found = look_at(path)
    except (OSError, Damaged):
        return None
    return found if found.header.lineage == lineage else None


def _make_way(path: Path) -> None:
    """Keep what is at the path, with the older files that belong to it, under another name."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size:  # an empty file holds nothing to keep
            older: tuple[Member, ...] = ()
            with contextlib.suppress(Damaged):
                older = older_of(path, look_at(path).header.lineage)
            set_aside(path, older, stays=True)


def _second_name(path: Path, name: Path) -> None:
    """Give a file another name; `FileExistsError` where that is another file's. Where the file system has no links, the
    file is renamed, and for a moment the new name is the only one."""
    try:
        os.link(path, name)
    except FileExistsError:
        if not name.samefile(path):  # else a writer was killed after it had given the name
            raise
    except FileNotFoundError:
        raise
    except OSError:
        if os.path.lexists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(name)) from None
        path.rename(name)


def _remove_if_same(path: Path, other: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.samefile(other):
            path.unlink()


def _free_sequence(path: Path, sequence: int) -> int:
    while os.path.lexists(older_path(path, sequence)):  # somebody else's: its name is taken
        sequence += 1
    return sequence


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(8).hex()}.tmp")


def _clear_leftovers(path: Path, *, all_of_them: bool) -> None:
    pattern = re.compile(r"\." + re.escape(path.name) + r"\.[0-9]+-[0-9a-f]{16}\.tmp")
    stale = time.time() - _STALE_SECONDS
    for leftover in path.parent.iterdir():
        with contextlib.suppress(OSError):
            if pattern.fullmatch(leftover.name) and (all_of_them or leftover.lstat().st_mtime < stale):
                leftover.unlink()


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot; the file itself is on the disk
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
