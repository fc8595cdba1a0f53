"""The file of one entry: its name, its last use, what a listing shows of it, and how it is removed.

The last use of an entry is the modification time of its file.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..platforms import system
from ..storage.files import Damaged, read_regular, remove, size_of
from ..storage.private import Trust
from . import entry as entries
from .entry import Facts

_ENTRY_FILE = re.compile(r".+-([0-9a-f]{64})\.bin\Z")


@lru_cache(maxsize=1024)
def slug(name: str) -> str:
    """A program's name as part of a file name: short, plain, and never a path."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[: system.LONGEST_NAME].strip("-.")
    return plain or "program"


def digest_in(path: Path) -> str:
    """The digest in the name of an entry file; empty where there is none."""
    match = _ENTRY_FILE.match(path.name)
    return match.group(1) if match else ""


class Stored(msgspec.Struct, frozen=True):
    """An entry file as a listing shows it; `facts` is None where the entry is damaged."""

    path: Path
    digest: str
    nbytes: int
    last_used: float
    facts: Facts | None
    damage: str = ""

    @property
    def folder(self) -> str:
        """The name of the GPU's folder it lies in."""
        return self.path.parents[2].name


def look_at(path: Path, trust: Trust) -> Stored:
    """An entry file, verified."""
    digest = digest_in(path)
    try:
        data, used = read_regular(path, trust)
        found = entries.decode(data, digest)
        return Stored(path, digest, len(data), used, found.facts)
    except Damaged as damage:
        return Stored(path, digest, size_of(path) or 0, 0.0, None, str(damage))
    except OSError as error:
        return Stored(path, digest, 0, 0.0, None, error.strerror or str(error))


class Use(NamedTuple):
    """When an entry file was last used, how large it is, and where; sorts by last use."""

    used: float
    nbytes: int
    path: str


def use_of(path: Path) -> Use:
    """The last use of an entry file. Raises `OSError`."""
    status = path.lstat()
    return Use(status.st_mtime, status.st_size, str(path))


def unlink_entry(path: Path) -> None:
    """Remove the file of an entry, or a folder in its place; `FileNotFoundError` if another process was first."""
    try:
        path.unlink()
    except (IsADirectoryError, PermissionError):
        if not path.is_dir():
            raise
        remove(path)
    path.with_suffix(".meta").unlink(missing_ok=True)
