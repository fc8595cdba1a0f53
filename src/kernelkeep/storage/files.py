"""Reading, writing and replacing files: atomically, for their owner alone, and regular files only.

A pipe, device, socket or folder in the place of a file is refused. No file of a cache folder is reached through a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from ..errors import ArgumentError
from ..platforms import system
from .private import WRITABLE_BY_OTHERS, Trust
from .reading import read_file, read_trusted

LARGEST_FILE = (1 << 30) + (1 << 20)  # an entry's largest payload, with room for its facts
_FOLLOW = os.O_RDONLY | system.OPEN_FLAGS | system.NO_WAITING
_READ = _FOLLOW | system.NO_LINKS
_OVERWRITE = os.O_RDWR | system.OPEN_FLAGS | system.NO_WAITING | system.NO_LINKS
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | system.OPEN_FLAGS | system.NO_WAITING | system.NO_LINKS
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.OPEN_FLAGS
_PRIVATE_FILE = 0o600
_PRIVATE_FOLDER = 0o700


class Damaged(Exception):
    """A file or entry is truncated, changed, of another kind, or not a regular file. Users do not get this exception."""


class NotRegular(Damaged):
    """There is no regular file at this path; `kind` says what there is, such as "a named pipe"."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"is {kind}, not a regular file")
        self.kind = kind


class Untrusted(Damaged):
    """Another user could have written this file."""


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


def open_regular(path: str | os.PathLike[str], *, follow_links: bool = True, trust: Trust | None = None) -> BinaryIO:
    """Open a regular file to read. Anything else is `NotRegular` and is not opened: opening a pipe waits for its other end, and
    opening a device may change it. With `trust`, a file that another user could have written is `Untrusted`."""
    _check_regular(Path(path).stat(follow_symlinks=follow_links))
    descriptor = system.open_file(path, _FOLLOW if follow_links else _READ)
    try:
        _check_opened(os.fstat(descriptor), trust)  # it may have changed in between
    except BaseException:
        os.close(descriptor)
        raise
    # Not in the block: Ctrl-C that comes when the file has been made closes it, and the descriptor may be another thread's then.
    return os.fdopen(descriptor, "rb")


def open_to_overwrite(path: Path) -> int:
    """Open a regular file to change parts of it in place; returns its descriptor. A link in its place is not followed."""
    _check_regular(path.lstat())
    descriptor = system.open_file(path, _OVERWRITE)
    try:
        _check_regular(os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_opened(found: os.stat_result, trust: Trust | None) -> None:
    _check_regular(found)
    if trust is not None and (objection := trust.objection(found)):
        raise Untrusted(f"it {objection}")


_OPEN_FILE = re.compile(r"(?:/proc/[^/]+(?:/task/\d+)?|/dev)/fd(?:/|\Z)")


def _leads_to_open_file(path: str | os.PathLike[str]) -> bool:
    at = os.fspath(path)
    for _ in range(40):  # as many links as Linux follows
        if _OPEN_FILE.match(os.path.realpath(os.path.dirname(at)) + "/"):  # noqa: PTH120
            return True
        try:
            at = os.path.join(os.path.dirname(at), os.readlink(at))  # noqa: PTH115, PTH118, PTH120
        except OSError:  # no link
            return False
    return False


def check_destination(path: str | os.PathLike[str]) -> None:
    """`NotRegular` where a new file would replace a folder, device, pipe or socket, also behind a link.

    `/dev/stdout` is refused wherever it leads: the file that output is redirected to would be replaced while it is written.
    """
    if _leads_to_open_file(path):
        raise NotRegular("an open file of this process")
    with contextlib.suppress(FileNotFoundError):
        _check_regular(Path(path).stat())


def read_usual(path: str, trust: Trust) -> tuple[bytes, float] | None:
    """What `read_regular` returns; None where it would raise, or might: it tells what is wrong."""
    found: tuple[bytes, float] | None = read_trusted(path, _READ, LARGEST_FILE, trust.uids)
    return found


def read_regular(path: str | Path, trust: Trust | None = None, most: int = LARGEST_FILE) -> tuple[bytes, float]:
    """A regular file's bytes and modification time; a link or anything else in its place is `Damaged`.

    With `trust`, a file that another user could have written is `Untrusted`.
    """
    try:
        data, modified, size, mode, owner = read_file(path, _READ, most)
    except OSError as error:
        # A link, a socket, a device; a folder, where that cannot be opened
        folder = isinstance(error, PermissionError) and os.path.isdir(path)  # noqa: PTH112
        if folder or error.errno in (errno.ELOOP, errno.ENXIO, errno.ENODEV):
            raise Damaged("something that is no file stands where it should be") from error
        raise
    # Every disk hit comes through here, so the usual case is checked without a call.
    ours = trust is None or (owner in trust.uids and not mode & WRITABLE_BY_OTHERS)
    if data is None or not ours:
        _check_opened(os.stat_result((mode, 0, 0, 0, owner, 0, size, 0, 0, 0)), trust)
        raise Damaged(f"it is far too large, {size:,} bytes")
    return data, modified


def create_folder(path: Path) -> None:
    """Create a folder and its missing parents for this user alone, under any umask; one that exists is left as it is."""
    try:
        path.mkdir(mode=_PRIVATE_FOLDER)
    except FileNotFoundError:
        create_folder(path.parent)
        path.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    except FileExistsError:
        if path.is_dir():
            return
        raise
    if stat.S_IMODE(path.lstat().st_mode) & 0o777 != _PRIVATE_FOLDER:  # the umask took from it
        path.chmod(_PRIVATE_FOLDER)


def make_folder(path: Path) -> None:
    """Create a folder of the cache; a file in its place is removed."""
    try:
        create_folder(path)
    except FileExistsError:
        path.unlink(missing_ok=True)
        create_folder(path)


def publish(temporary: Path, path: Path) -> None:
    """Rename a temporary file to its path, so that readers see a whole file or none. A folder in its place is removed."""
    try:
        system.replace(temporary, path)
    except (IsADirectoryError, PermissionError):
        if not path.is_dir():
            temporary.unlink(missing_ok=True)
            raise
        remove(path)
        system.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def move(path: Path, target: Path) -> bool:
    """Rename a file or folder, whatever it is; False where another process was first."""
    try:
        path.rename(target)
    except FileNotFoundError:
        return False
    return True


def replace_appended(temporary: Path, path: Path, seen_bytes: int) -> None:
    """Replace a file that other processes append to. What they added after its first `seen_bytes` is appended to the new one.

    Where an open file cannot be replaced, a line that is added in the last moment is lost.
    """
    if not system.REMOVES_OPEN_FILES:
        with contextlib.suppress(OSError, Damaged):
            if added := read_regular(path)[0][seen_bytes:]:
                _append(temporary, added)
        publish(temporary, path)
        return
    descriptor = None
    with contextlib.suppress(OSError):
        descriptor = os.open(path, _READ)
    try:
        publish(temporary, path)
        if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
            added = system.read_at(descriptor, max(0, os.fstat(descriptor).st_size - seen_bytes), seen_bytes)
            if added:
                _append(path, added)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def create_private(path: Path) -> int:
    """Create a file that only its owner may read, under any umask, and open it to write. It must not exist."""
    descriptor = os.open(path, _CREATE, _PRIVATE_FILE)
    try:
        system.set_mode(descriptor, _PRIVATE_FILE)
    except BaseException:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise
    return descriptor


def write_temporary(folder: Path, data: bytes, prefix: str = "") -> Path:
    """Write a new private file, which `publish` then renames to where it belongs."""
    make_folder(folder)
    path = folder / f"{prefix}{os.getpid()}-{os.urandom(8).hex()}"
    descriptor = create_private(path)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file for the user, atomically; `ArgumentError` where it cannot be written.

    A link is followed. A device, pipe, socket or folder at `path` is refused: a rename would replace it.
    """
    try:
        path = Path(path)
    except TypeError:
        raise ArgumentError(f"path must be the path of a file, got {path!r}") from None
    try:
        check_destination(path)
        path = Path(os.path.realpath(path))
    except NotRegular as error:
        raise ArgumentError(f"{path} cannot be written: it {error}") from None
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    temporary = path.parent / f".{path.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        fill_and_rename(temporary, path, lambda file: file.write(data))
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None


def fill_and_rename(
    temporary: Path, path: Path, fill: Callable[[BinaryIO], object], before_rename: Callable[[], None] | None = None
) -> None:
    """Create `temporary` with the user's permissions, have `fill` write it, and rename it to `path`.

    Whatever fails, `temporary` is removed.
    """
    try:
        with os.fdopen(os.open(temporary, _CREATE, 0o666), "wb") as file:
            fill(file)
        if before_rename is not None:
            before_rename()
        system.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        raise


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, all of it or `OSError`. Anything but a regular file in its place is removed first."""
    make_folder(path.parent)
    _append(path, line.encode())


def _append(path: Path, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            remove(path)
    descriptor = system.open_file(path, _APPEND, _PRIVATE_FILE)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "something that is no file stands where it should be")
        if stat.S_IMODE(found.st_mode) != _PRIVATE_FILE:  # the umask took from it
            with contextlib.suppress(OSError):
                system.set_mode(descriptor, _PRIVATE_FILE)
        if system.append(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Remove a file or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        import shutil  # rarely needed, and start-up counts

        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def size_of(path: Path) -> int | None:
    """The size of a file; None where there is none."""
    try:
        return path.lstat().st_size
    except OSError:
        return None
