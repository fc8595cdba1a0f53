"""A file that is replaced in one step and survives a power cut: written beside its path, synced to disk, and renamed.

Whoever reads the path sees the old file or the new one, never a part, whenever the writer is killed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ..platforms import system
from .files import check_destination, fill_and_rename

_STALE_SECONDS = 3600.0


def replace_durably(path: Path, fill: Callable[[BinaryIO], None], before_rename: Callable[[], None]) -> None:
    """Have `fill` write a new file, and put it at `path` after `before_rename` has dealt with what is there.

    Raises `OSError`, `NotRegular`, and whatever the two raise; what was at `path` is then as `before_rename` left it.
    """

    def fill_and_sync(file: BinaryIO) -> None:
        fill(file)
        file.flush()
        system.sync(file.fileno())

    def make_way() -> None:
        before_rename()
        check_destination(path)  # a rename would replace a device that came meanwhile

    fill_and_rename(_temporary(path), path, fill_and_sync, make_way)
    sync_folder(path.parent)


def reuse_durably(
    path: Path, other: Path, descriptor: int, patch: Callable[[int], None], before_rename: Callable[[], None]
) -> bool:
    """Have `patch` change the file `other`, which is open, and put it at `path` after `before_rename`; False where it cannot.

    `other` is lost: its name is gone before a byte of it changes, also where the power is cut. It is not changed where anybody
    else has it open, or by another name. Raises as `replace_durably`.
    """
    temporary = _temporary(path)
    other.rename(temporary)
    try:
        if system.is_open_elsewhere(descriptor) or os.fstat(descriptor).st_nlink != 1:
            temporary.unlink()
            return False
        sync_folder(path.parent)
        patch(descriptor)
        system.sync(descriptor)
        before_rename()
        check_destination(path)
        system.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    return True


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(8).hex()}.tmp")


def remove_leftovers(path: Path, *, only_stale: bool) -> None:
    """Remove temporary files of writers that were killed; with `only_stale`, only those that nobody writes any more."""
    pattern = re.compile(r"\." + re.escape(path.name) + r"\.[0-9]+-[0-9a-f]{16}\.tmp")
    stale = time.time() - _STALE_SECONDS
    for leftover in path.parent.iterdir():
        with contextlib.suppress(OSError):
            if pattern.fullmatch(leftover.name) and (not only_stale or leftover.lstat().st_mtime < stale):
                leftover.unlink()


def link_or_rename(path: Path, name: Path) -> None:
    """Give a file a second name; `FileExistsError` where another file has it.

    Where the file system has no links the file is renamed, and for a moment the new name is the only one.
    """
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


def remove_if_same(path: Path, other: Path) -> None:
    """Remove a name of a file that has `other` as its second name."""
    with contextlib.suppress(FileNotFoundError):
        if path.samefile(other):
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        system.sync_folder(folder)
