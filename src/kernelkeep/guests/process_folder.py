"""Files that only this process uses, for guests that want paths instead of bytes.

They are in memory where that is possible. Some systems have no room there, or do not run what lies there, which is a container's
default; then they are in the folder for temporary files. Who is killed leaves its folder behind, and the next process removes it:
a folder is in use as long as somebody holds the lock in it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..platforms import system
from ..storage.locks import LockUnavailable, hold_for_life, unless_held
from .process_end import at_process_end

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_IN_MEMORY = Path("/dev/shm")
_PREFIX = "kernelkeep-files-"
_LOCK = ".in-use"  # held by the process
_YOUNG_SECONDS = 60.0  # a folder may be new, and not held yet
_TRIES = 4


class ProcessFolder:
    """A folder that only this user can read, for this process; removed at its end. Safe under threads."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._forget(0)

    def _forget(self, process: int) -> None:
        self._process = process
        self._path: Path | None = None
        self._places = _usable_places()
        self._written: dict[str, dict[str, str]] = {}

    def find(self, label: str) -> dict[str, str] | None:
        """The paths of what this process wrote under a label before, if the files are there.

        A forked child has written nothing yet.
        """
        found = self._written.get(label) if self._process == os.getpid() else None
        if found is None or not all(map(os.path.exists, found.values())):  # somebody may tidy up
            return None
        return dict(found)

    def write(self, files: Mapping[str, bytes | memoryview], label: str = "") -> dict[str, str]:
        """The paths of new files that nobody else writes to, or reads while they are written. `OSError`: there is no room."""
        if self._process != os.getpid():  # the folder of a forked child's parent is the parent's
            self._forget(os.getpid())
        for tries in range(1, _TRIES + 1):
            folder = None
            try:
                folder = self._folder()
                paths = self._write(folder, files)
                break
            except OSError as error:
                if tries == _TRIES:
                    raise
                self._leave(folder, error)
        if label:
            self._written[label] = dict(paths)
        return paths

    def _write(self, folder: Path, files: Mapping[str, bytes | memoryview]) -> dict[str, str]:
        prefix = f"{folder}/{next(self._numbers)}-"
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
        return paths

    def _leave(self, folder: Path | None, error: OSError) -> None:
        """Take another folder for what is written next: somebody removed this one, or there is no room. Its files stay."""
        if not isinstance(error, FileNotFoundError):
            if len(self._places) < 2:
                raise error
            self._places = self._places[1:]
        if self._path == folder:
            self._path = None

    def _folder(self) -> Path:
        path = self._path
        if path is None:
            place = self._places[0]
            _remove_abandoned(place)
            path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
            with contextlib.suppress(LockUnavailable):
                hold_for_life(path / _LOCK)
            at_process_end(shutil.rmtree, path, True)
            self._path = path
        return path


def _usable_places() -> list[Path]:
    temporary = Path(tempfile.gettempdir())
    return [_IN_MEMORY, temporary] if os.access(_IN_MEMORY, os.W_OK) and _runs_files(_IN_MEMORY) else [temporary]


def _runs_files(folder: Path) -> bool:
    """Whether a library in the folder can be loaded."""
    status: Any = getattr(os, "statvfs", None)
    try:
        return status is not None and not status(folder).f_flag & getattr(os, "ST_NOEXEC", 0)
    except OSError:
        return False


def _remove_abandoned(place: Path) -> None:
    """Remove folders of this user whose process has ended without removing them."""
    for path in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_uid != system.user_number() or time.time() - status.st_mtime < _YOUNG_SECONDS:
                continue
            with unless_held(path / _LOCK) as is_free:
                if is_free:
                    shutil.rmtree(path, ignore_errors=True)
