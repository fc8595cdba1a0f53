"""Checkpoint files: the state of a run, complete in one file that proves itself, and a few older ones beside it.

`kill -9` at any moment leaves at least one whole file once one was written, and a file that was reported as written
survives a power cut as far as the disk keeps its word: it is synced before it gets its name. What the bytes are is in
`docs/checkpoint-format.md`; nothing in them is pickled.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from ..errors import ArgumentError, CheckpointError
from ..storage.files import Damaged, open_regular
from .checkpoint_files import candidates, publish, real_path
from .checkpoint_format import Prefix, read_arrays, read_start, write
from .checkpoint_header import ArrayInfo, Header, ScalarValue

__all__ = [
    "ArrayInfo",
    "Checkpoint",
    "Header",
    "ScalarValue",
    "Written",
    "newest_checkpoint",
    "newest_header",
    "read_checkpoint",
    "read_header",
    "write_checkpoint",
]


class Checkpoint(msgspec.Struct, frozen=True):
    """A state: what is known of it, and its arrays by name."""

    header: Header
    arrays: Mapping[str, np.ndarray[Any, Any]]


class Written(msgspec.Struct, frozen=True):
    """What writing a checkpoint took: bytes of the file, bytes of the arrays, and time."""

    nbytes: int
    raw_bytes: int
    seconds: float


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint, *, keep: int = 2) -> Written:
    """Write a checkpoint to `path`, all of it or nothing.

    The one that was there becomes `path.1`, that one `path.2`, …; `keep` counts all files, and what is beyond it is removed.
    A file that is damaged at its start or end is not kept, and one that is no checkpoint is renamed to `path.set-aside`. The
    folder is made where it is missing. The header's table of arrays is made from the arrays.

    Raises `CheckpointError` where the disk is full or the folder cannot be written to; the files there stay as they are.
    """
    real = real_path(path)
    if keep < 1:
        raise ArgumentError(f"keep={keep} keeps nothing; 1 is the checkpoint alone")
    start = time.perf_counter()
    sizes = (0, 0)

    def fill(file: BinaryIO, sequence: int) -> None:
        nonlocal sizes
        sizes = write(file, checkpoint.header, checkpoint.arrays, sequence)

    try:
        publish(real, keep, fill)
    except OSError as error:
        raise CheckpointError(f"the checkpoint {path} cannot be written: {_reason(error)}") from error
    except ValueError as error:
        raise CheckpointError(f"the checkpoint {path} cannot be written: {error}") from error
    return Written(*sizes, time.perf_counter() - start)


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint in exactly this file, every byte checked before any of it is returned.

    Raises `CheckpointError`, which says in one sentence what is wrong.
    """
    header, arrays = _read(real_path(path), path)
    return Checkpoint(header, arrays)


def read_header(path: str | os.PathLike[str]) -> Header:
    """The header of exactly this file, checked, and that the file has its end; the arrays are not looked at."""
    return _start(real_path(path), path)[0]


def newest_checkpoint(path: str | os.PathLike[str]) -> tuple[Checkpoint, list[str]]:
    """The newest good one among `path` and the older files beside it, and a sentence for each that was passed over.

    The newest is the one that was written last, which each file knows by its sequence, whatever it is named. It is the one
    with most iterations unless a run was started over, and then it is of the new run. `CheckpointError` when none is good.
    """
    ordered, passed = _newest_first(path)
    for _, file in ordered:
        try:
            header, arrays = _read(file, file)
        except CheckpointError as error:
            passed.append(str(error))
        else:
            return Checkpoint(header, arrays), passed
    raise _none_is_good(path, passed)


def newest_header(path: str | os.PathLike[str]) -> Header:
    """What the newest file holds, by its header: a quick look that reads no array and so may miss damage in them."""
    ordered, passed = _newest_first(path)
    if not ordered:
        raise _none_is_good(path, passed)
    return ordered[0][0]


def _newest_first(path: str | os.PathLike[str]) -> tuple[list[tuple[Header, Path]], list[str]]:
    passed: list[str] = []
    found: list[tuple[tuple[int, int, int], Header, Path]] = []
    for file in candidates(real_path(path)):
        try:
            header, prefix = _start(file, file)
        except CheckpointError as error:
            passed.append(str(error))
        else:
            # Two have the same sequence only where a file system has no locks, or files were copied.
            found.append(((prefix.sequence, header.generation, header.iteration), header, file))
    found.sort(key=lambda one: one[0], reverse=True)  # stable: of equals the one with the smaller number
    return [(header, file) for _, header, file in found], passed


def _none_is_good(path: str | os.PathLike[str], passed: list[str]) -> CheckpointError:
    if len(passed) == 1:
        return CheckpointError(passed[0])
    return CheckpointError(f"none of the {len(passed)} files of {path} is a good checkpoint: {'; '.join(passed)}")


def _start(real: Path, shown: object) -> tuple[Header, Prefix]:
    try:
        with open_regular(real) as file:
            header, prefix, _ = read_start(file, to_the_end=True)
            return header, prefix
    except (OSError, Damaged) as error:
        raise _unreadable(shown, error) from None


def _read(real: Path, shown: object) -> tuple[Header, dict[str, np.ndarray[Any, Any]]]:
    try:
        with open_regular(real) as file:
            header, _, source = read_start(file)
            return header, read_arrays(header, source)
    except (OSError, Damaged) as error:
        raise _unreadable(shown, error) from None


def _unreadable(shown: object, error: OSError | Damaged) -> CheckpointError:
    if isinstance(error, Damaged):
        return CheckpointError(f"{shown} {error}")
    if error.errno == errno.ENOENT:
        return CheckpointError(f"there is no checkpoint {shown}")
    return CheckpointError(f"the checkpoint {shown} cannot be read: {_reason(error)}")


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
