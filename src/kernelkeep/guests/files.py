"""Several files as the bytes of one entry, and files that only this process uses, for guests that want paths."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from ..platforms import system
from ..storage.files import Damaged
from ..storage.locks import LockUnavailable, hold_for_life, unless_held
from .process_end import at_process_end

_COUNT = struct.Struct("<I")
_SIZES = struct.Struct("<II")  # of a name and of its file
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_IN_MEMORY = Path("/dev/shm")
_PREFIX = "kernelkeep-files-"
_LOCK = ".in-use"  # held by the process
_YOUNG_SECONDS = 60.0  # a folder may be new, and not held yet


def pack(files: Mapping[str, bytes]) -> bytes:
    """The files as one run of bytes."""
    parts = [_COUNT.pack(len(files))]
    for name, content in files.items():
        encoded = name.encode()
        parts += [_SIZES.pack(len(encoded), len(content)), encoded, content]
    return b"".join(parts)


def unpack(data: bytes) -> dict[str, memoryview]:
    """The files again; `Damaged` where the bytes are no such files, or a name is a path."""
    try:
        (count,) = _COUNT.unpack_from(data)
        at = _COUNT.size
        view = memoryview(data)  # files are written, not kept: no copy of each is needed
        files = {}
        for _ in range(count):
            name_size, size = _SIZES.unpack_from(data, at)
            at += _SIZES.size
            name = data[at : at + name_size].decode()
            at += name_size
            if not name or name in (".", "..") or any(one in name for one in "/\\\0"):
                raise Damaged(f"{name!r} is no name of a file")
            if at + size > len(data):
                raise Damaged("its files are cut off")
            files[name] = view[at : at + size]
            at += size
    except (struct.error, UnicodeDecodeError) as error:
        raise Damaged(f"its files cannot be read: {error}") from None
    if at != len(data):
        raise Damaged("there is more behind its files")
    return files


class ProcessFolder:
    """A folder that only this user can read, for this process, in memory where that is possible; removed at its end.

    What processes left that were killed is removed by the next one.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._path = ""
        self._process = 0
        self._written: dict[str, dict[str, str]] = {}

    def find(self, label: str) -> dict[str, str] | None:
        """The paths of what this process wrote under a label before; a forked child has written nothing yet."""
        found = self._written.get(label) if self._process == os.getpid() else None
        return None if found is None else dict(found)

    def write(self, files: Mapping[str, bytes | memoryview], label: str = "") -> dict[str, str]:
        """The paths of new files that nobody else writes to, or reads while they are written."""
        prefix = f"{self._folder()}/{next(self._numbers)}-"
        paths = {}
        for name, content in files.items():
            paths[name] = path = prefix + name
            descriptor = os.open(path, _NEW_FILE, 0o600)
            try:
                size = os.write(descriptor, content)
                while size < len(content):
                    size += os.write(descriptor, memoryview(content)[size:])
            finally:
                os.close(descriptor)
        if label:
            self._written[label] = dict(paths)
        return paths

    def _folder(self) -> str:
        if self._process != os.getpid():  # the folder of a forked child's parent is the parent's
            where = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
            _remove_abandoned(where)
            self._path = tempfile.mkdtemp(prefix=_PREFIX, dir=where)
            with contextlib.suppress(LockUnavailable):
                hold_for_life(Path(self._path, _LOCK))
            self._written = {}
            self._process = os.getpid()
            at_process_end(shutil.rmtree, self._path, True)
        return self._path


def _remove_abandoned(where: Path) -> None:
    """Remove folders of this user whose process has ended without removing them."""
    for path in where.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_uid != system.user_number() or time.time() - status.st_mtime < _YOUNG_SECONDS:
                continue
            with unless_held(path / _LOCK) as is_free:
                if is_free:
                    shutil.rmtree(path, ignore_errors=True)
