"""Opening a checkpoint file to read, so that its writer does not overwrite it meanwhile (`patching.py`)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ...platforms import system
from ...storage.files import open_regular

_PATIENCE_SECONDS = 1.0


@contextlib.contextmanager
def open_to_read(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open the regular file at a path. A writer leaves it as it is until it is closed, and writes a new file instead.

    A file that its writer overwrites at this moment loses its name first: then the one that has the name now is opened.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with open_regular(path) as file:
            # Where others keep it locked all the time, its digests tell whether it is whole.
            if _stays(file, Path(path)) or time.monotonic() > deadline:
                yield file
                return
        time.sleep(0.001)


def _stays(file: BinaryIO, path: Path) -> bool:
    if not system.OVERWRITES_OPEN_FILES:
        return True
    try:
        locked = system.lock(file.fileno(), shared=True)
    except OSError:  # a file system without locks, where nothing is overwritten in place
        return True
    try:
        return locked and os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
