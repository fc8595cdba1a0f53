"""Files of a cache folder: read with care, replaced in one step, and whatever stands in their place got out of the way."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from ..errors import ArgumentError

__all__ = [
    "LARGEST_FILE",
    "Damaged",
    "NotRegular",
    "append_line",
    "check_destination",
    "make_folder",
    "open_regular",
    "read_regular",
    "remove",
    "replace",
    "size_of",
    "write_temporary",
    "write_whole",
]

LARGEST_FILE = (1 << 30) + (1 << 20)  # an entry's largest payload, with room for its facts


class Damaged(Exception):
    """A file is not what it must be: cut off, changed, of another kind, or not a regular file. Stays inside the package."""


class NotRegular(Damaged):
    """A path leads to something that is not a regular file; `kind` says to what, such as "a named pipe"."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"is {kind}, not a regular file")
        self.kind = kind


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


def _check_regular(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(_KINDS.get(stat.S_IFMT(found.st_mode), "something else"))


def open_regular(path: str | os.PathLike[str], *, follow_links: bool = True) -> BinaryIO:
    """Open a regular file to read. Anything else is `NotRegular`, and is not opened: opening a pipe waits for its other end,
    and opening a device may do something to it."""
    _check_regular(Path(path).stat(follow_symlinks=follow_links))
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        _check_regular(os.fstat(descriptor))  # it may have changed in between
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_destination(path: str | os.PathLike[str]) -> None:
    """`NotRegular` where a new file would take the place of a folder, device, pipe or socket, also behind a link."""
    with contextlib.suppress(FileNotFoundError):
        _check_regular(Path(path).stat())


def read_regular(path: str | Path) -> tuple[bytes, float]:
    """A regular file's bytes and modification time; a link or folder in its place is `Damaged`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if Path(path).is_symlink():
            raise Damaged("a link stands where it should be") from error
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Damaged("something that is no file stands where it should be")
        if found.st_size > LARGEST_FILE:
            raise Damaged(f"it is far too large, {found.st_size:,} bytes")
        data = os.read(descriptor, found.st_size + 1)
        while len(data) < found.st_size and (more := os.read(descriptor, found.st_size - len(data))):
            data += more
        return data, found.st_mtime
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """A folder inside the cache's own; a file in its place is not ours, and in the way."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        path.unlink()
        path.mkdir(mode=0o700, exist_ok=True)


def replace(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    except IsADirectoryError:
        remove(path)  # not ours, and in the way
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_temporary(folder: Path, data: bytes) -> Path:
    """A new file with `data`, to be renamed to where it belongs."""
    make_folder(folder)
    path = folder / f"{os.getpid()}-{os.urandom(8).hex()}"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return path


def write_whole(path: Path, data: bytes) -> None:
    """Write a file of the user's, which appears whole or not at all; `ArgumentError` where it cannot be written.

    A link is followed. A device, pipe, socket or folder at `path` is refused: a rename would replace it.
    """
    try:
        check_destination(path)
        path = Path(os.path.realpath(path))
    except NotRegular as error:
        raise ArgumentError(f"{path} cannot be written: it {error}") from None
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    temporary = path.parent / f".{path.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(data)
        temporary.replace(path)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        raise ArgumentError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None


def append_line(path: Path, line: str) -> None:
    """Add a line at the end of a file; all of it or an `OSError`."""
    make_folder(path.parent)
    if path.is_dir() or path.is_symlink():
        remove(path)  # not ours, and in the way
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if os.write(descriptor, line.encode()) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        import shutil  # rarely needed, and start-up counts

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def size_of(path: Path) -> int | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None
