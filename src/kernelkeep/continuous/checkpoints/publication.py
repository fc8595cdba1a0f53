"""How the files of a checkpoint are replaced: nothing that another run wrote is ever overwritten or removed.

A new file is written beside the others and renamed when it is complete and on the disk. The one before it first gets a second
name, `heat.kkpt.41` after its sequence number; so `heat.kkpt` exists at every moment, whoever is killed. A file that does not
belong to the run but has its name is kept as `heat.kkpt.before-20261115T195238Z`.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

from ...storage.durable import (
    link_or_rename,
    remove_if_same,
    remove_leftovers,
    replace_durably,
    reuse_durably,
    sync_folder,
)
from ...storage.files import Damaged, check_destination
from .blocks import BlockContent
from .file_set import CheckpointFile, inspect_file, older_of, older_path
from .patching import Base, open_base

_ASIDE = ".before-"


def publish(
    path: Path,
    lineage: str,
    keep: int,
    write: Callable[[BinaryIO, int], None],
    *,
    content: BlockContent | None = None,
    last: int = 0,
    alone: bool = True,
) -> int:
    """Have `write(file, sequence)` fill a new file and put it in the place of the last one, which becomes older.

    With `content`, an older file that would be removed afterwards is overwritten instead, where that is less to write.

    Returns the new sequence number, which is above `last` and those of all files of this lineage. `alone` says that no
    other process writes here, so that temporary files are known to be left over. Raises `OSError`, `NotRegular`, and
    whatever `write` raises; then the files that were there are as they were.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
    check_destination(path)
    remove_leftovers(path, only_stale=not alone)
    before = _own_file(path, lineage)
    older = older_of(path, lineage)
    known = [file.sequence for file in (before, *older) if file is not None]
    sequence = 1 + max((last, *known))
    while os.path.lexists(older_path(path, sequence)):  # the name is taken by a file of somebody else
        sequence += 1

    def make_way() -> None:
        if before is None:
            _keep_foreign_file(path)
        elif before.whole and keep > 1:
            # Where somebody else took the name since, there is one older file less.
            with contextlib.suppress(FileExistsError):
                link_or_rename(path, older_path(path, before.sequence))

    # Only with a whole file at the path: the newest one is never overwritten, nor the last one there is.
    if content is not None and alone and keep > 1 and before is not None and before.whole:
        for file in older[keep - 2 :]:
            base = open_base(file.path, lineage, content)
            if base is not None and _overwrite(path, base, content, sequence, make_way):
                return sequence
    replace_durably(path, lambda file: write(file, sequence), make_way)
    return sequence


def _overwrite(path: Path, base: Base, content: BlockContent, sequence: int, make_way: Callable[[], None]) -> bool:
    with base:
        return reuse_durably(
            path, base.path, base.descriptor, lambda to: content.patch(to, base.table, sequence), make_way
        )


def remove_surplus(path: Path, lineage: str, keep: int) -> None:
    """Remove the older files beyond those that are kept."""
    for file in older_of(path, lineage)[keep - 1 :]:
        with contextlib.suppress(OSError):
            file.path.unlink()


def keep_aside(path: Path, older: Iterable[CheckpointFile], *, stays: bool = False) -> Path:
    """Give a checkpoint and its older files a name that nothing overwrites; returns that name.

    They belong together under the new name as they did under the old one. With `stays`, the path keeps its name as well,
    until a new file takes its place.
    """
    files = list(older)
    for target in _aside_names(path):
        moves = [(file.path, older_path(target, file.sequence)) for file in files]
        if any(os.path.lexists(new) for _, new in moves):
            continue
        try:
            link_or_rename(path, target)
        except FileExistsError:
            continue
        except FileNotFoundError:
            pass  # only older ones exist
        for old, new in moves:
            with contextlib.suppress(FileNotFoundError):
                link_or_rename(old, new)
                remove_if_same(old, new)
        if not stays:
            remove_if_same(path, target)
        sync_folder(path.parent)
        return target
    raise AssertionError("names do not run out")


def _aside_names(path: Path) -> Iterable[Path]:
    name = path.name + _ASIDE + time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return (path.with_name(name if number == 1 else f"{name}-{number}") for number in itertools.count(1))


def _own_file(path: Path, lineage: str) -> CheckpointFile | None:
    """The file at the path, if it belongs to the run."""
    try:
        found = inspect_file(path)
    except (OSError, Damaged):
        return None
    return found if found.header.lineage == lineage else None


def _keep_foreign_file(path: Path) -> None:
    """Keep a file of another run that is at the path, with the older files that belong to it, under another name."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size:  # an empty file holds nothing to keep
            older: tuple[CheckpointFile, ...] = ()
            with contextlib.suppress(Damaged):
                older = older_of(path, inspect_file(path).header.lineage)
            keep_aside(path, older, stays=True)
