"""Whole files in one call (`_reading.c`, or the same in plain Python): every hit on disk reads some.

    data, modified, size, mode, owner = read_file(path, flags, most)
    data, modified = read_trusted(path, flags, most, owners) or …
    data = read_files(prefix, [(name, size), ...], flags, owners)
    if is_private_folder(path, owners): …

`read_file`: `data` is None, and nothing is read, where the path leads to anything but a regular file or to one of more than
`most` bytes. A file that grows meanwhile gives one byte more than `size`. `read_files`: the bytes of files whose names begin with
`prefix`, one behind the other; None where one of them is no regular file of this size, or could have been written by anybody but
the users `owners`, a frozenset of numbers. `read_trusted`: None where anything is out of the ordinary; `read_file` tells what.
`is_private_folder`: whether a path leads to a folder, not through a link, that only the users `owners` can write to.

`read_file` and `read_files` raise `OSError`; `read_trusted` and `is_private_folder` do not.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from .. import settings
from ..platforms import system

_Found = tuple[bytes | None, float, int, int, int]


def read_file_in_python(path: str | os.PathLike[str], flags: int, most: int) -> _Found:
    """The twin of the function in C."""
    descriptor = system.open_file(path, flags)
    try:
        found = os.fstat(descriptor)
        size = found.st_size
        data = None
        if stat.S_ISREG(found.st_mode) and size <= most:
            data = os.read(descriptor, size + 1)
            while len(data) < size and (more := os.read(descriptor, size + 1 - len(data))):
                data += more
        return data, found.st_mtime, size, found.st_mode, found.st_uid
    finally:
        os.close(descriptor)


def read_trusted_in_python(
    path: str | os.PathLike[str], flags: int, most: int, owners: frozenset[int]
) -> tuple[bytes, float] | None:
    """The twin of the function in C."""
    try:
        data, modified, _, mode, owner = read_file_in_python(path, flags, most)
    except OSError:
        return None
    if data is None or mode & system.WRITABLE_BY_OTHERS or owner not in owners:
        return None
    return data, modified


def read_files_in_python(prefix: str, files: list[tuple[str, int]], flags: int, owners: frozenset[int]) -> bytes | None:
    """The twin of the function in C."""
    parts = []
    for name, size in files:
        data, _, _, mode, owner = read_file_in_python(prefix + name, flags, size)
        if data is None or len(data) != size or mode & system.WRITABLE_BY_OTHERS or owner not in owners:
            return None
        parts.append(data)
    return b"".join(parts)


def is_private_folder_in_python(path: str | os.PathLike[str], owners: frozenset[int]) -> bool:
    """The twin of the function in C."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    theirs = found.st_uid in owners and not found.st_mode & system.WRITABLE_BY_OTHERS
    return stat.S_ISDIR(found.st_mode) and theirs


def _native() -> Any:
    """The module in C; None where it was not built or is not to be used."""
    if not settings.native():
        return None
    try:
        from .. import _reading
        from .._reading import is_private_folder  # noqa: F401  one that was built from an older file has none
    except ImportError:
        return None
    return _reading


_module = _native()
read_file = read_file_in_python if _module is None else _module.read_file
read_trusted = read_trusted_in_python if _module is None else _module.read_trusted
read_files = read_files_in_python if _module is None else _module.read_files
is_private_folder = is_private_folder_in_python if _module is None else _module.is_private_folder
