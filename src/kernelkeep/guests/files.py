"""Several files as the bytes of one entry, and files that only this process uses, for guests that want paths."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import shutil
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..storage.files import Damaged

_COUNT = struct.Struct("<I")
_SIZES = struct.Struct("<II")  # of a name and of its file
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_IN_MEMORY = Path("/dev/shm")


def pack(files: Mapping[str, bytes]) -> bytes:
    """The files as one run of bytes."""
    parts = [_COUNT.pack(len(files))]
    for name, content in files.items():
        encoded = name.encode()
        parts += [_SIZES.pack(len(encoded), len(content)), encoded, content]
    return b"".join(parts)


def unpack(data: bytes) -> dict[str, bytes]:
    """The files again; `Damaged` where the bytes are no such files, or a name is a path."""
    try:
        (count,) = _COUNT.unpack_from(data)
        at = _COUNT.size
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
            files[name] = data[at : at + size]
            at += size
    except (struct.error, UnicodeDecodeError) as error:
        raise Damaged(f"its files cannot be read: {error}") from None
    if at != len(data):
        raise Damaged("there is more behind its files")
    return files


class ProcessFolder:
    """A folder that only this user can read, for this process, in memory where that is possible; removed at its end."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._path: Path | None = None
        self._process = 0
        self._written: dict[str, dict[str, str]] = {}

    def find(self, label: str) -> dict[str, str] | None:
        """The paths of what this process wrote under a label before; a forked child has written nothing yet."""
        found = self._written.get(label) if self._process == os.getpid() else None
        return None if found is None else dict(found)

    def write(self, files: Mapping[str, bytes], label: str = "") -> dict[str, str]:
        """The paths of new files that nobody else writes to, or reads while they are written."""
        prefix = f"{self._folder()}/{next(self._numbers)}-"
        paths = {}
        for name, content in files.items():
            paths[name] = path = prefix + name
            descriptor = os.open(path, _NEW_FILE, 0o600)
            try:
                left = memoryview(content)
                while left:
                    left = left[os.write(descriptor, left) :]
            finally:
                os.close(descriptor)
        if label:
            self._written[label] = dict(paths)
        return paths

    def _folder(self) -> Path:
        if self._path is None or self._process != os.getpid():  # the folder of a forked child's parent is the parent's
            where = str(_IN_MEMORY) if os.access(_IN_MEMORY, os.W_OK) else None
            self._path = Path(tempfile.mkdtemp(prefix="kernelkeep-", dir=where))
            self._process = os.getpid()
            self._written = {}
            atexit.register(self._remove, self._path, self._process)
        return self._path

    @staticmethod
    def _remove(path: Path, process: int) -> None:
        if os.getpid() == process:
            with contextlib.suppress(OSError):
                shutil.rmtree(path, ignore_errors=True)
