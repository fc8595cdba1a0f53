"""Removing files and folders, with a report of what was removed and what could not be."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

# Another process removed it or replaced it.
_OTHERS_WERE_THERE = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR, errno.ENOTDIR)


def remove_all(path: Path, left: dict[str, str], on_removed: Callable[[str, int], None] | None = None) -> None:
    """Remove a file, or a folder with all that is in it. Files that other processes add meanwhile may stay.

    `left` gets a reason for each path that cannot be removed, and `on_removed` the path and size of each file that this
    call removed.
    """

    def note(error: OSError) -> None:
        if error.errno not in _OTHERS_WERE_THERE:
            left[str(error.filename)] = error.strerror or str(error)

    def unlink(file: str) -> None:
        try:
            size = os.lstat(file).st_size
            os.unlink(file)  # noqa: PTH108
        except OSError as error:
            note(error)
        else:
            if on_removed is not None:
                on_removed(file, size)

    def rmdir(folder: str) -> None:
        try:
            os.rmdir(folder)  # noqa: PTH106
        except OSError as error:
            note(error)

    if not path.is_dir() or path.is_symlink():
        unlink(str(path))
        return
    for inside, folders, files in os.walk(path, topdown=False, onerror=note):
        for name in files:
            unlink(os.path.join(inside, name))  # noqa: PTH118
        for name in folders:
            found = os.path.join(inside, name)  # noqa: PTH118
            (unlink if os.path.islink(found) else rmdir)(found)  # noqa: PTH114
    rmdir(str(path))
