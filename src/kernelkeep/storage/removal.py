"""Removing files and folders, and saying what could not be removed."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

__all__ = ["remove_all", "remove_one"]


def remove_one(path: Path, left: dict[str, str]) -> bool:
    """Whether this call removed a file, or a whole folder in its place. `left` gets the reason for each that stays."""
    try:
        path.unlink()
        return True
    except FileNotFoundError:
        return False
    except OSError as error:
        if path.is_dir() and not path.is_symlink():
            return remove_all(path, left)
        left[str(path)] = error.strerror or str(error)
        return False


def remove_all(folder: Path, left: dict[str, str]) -> bool:
    """Whether a folder and all that was in it is gone. Files that other processes add meanwhile may stay."""
    if not folder.is_dir() or folder.is_symlink():
        return not os.path.lexists(folder) or remove_one(folder, left)
    before = len(left)

    def note(error: OSError) -> None:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
            left[str(error.filename)] = error.strerror or str(error)

    for inside, folders, files in os.walk(folder, topdown=False, onerror=note):
        for name in (*files, *folders):
            path = os.path.join(inside, name)  # noqa: PTH118
            try:
                if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
                    os.rmdir(path)  # noqa: PTH106
                else:
                    os.unlink(path)  # noqa: PTH108
            except OSError as error:
                note(error)
    try:
        folder.rmdir()
    except OSError as error:
        note(error)
    with contextlib.suppress(OSError):
        return len(left) == before and not folder.exists()
    return False
