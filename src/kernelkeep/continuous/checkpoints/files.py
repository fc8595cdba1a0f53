"""Checkpoint files: the state of a run, complete in one file that proves itself, and a few older ones beside it.

`kill -9` at any moment leaves at least one whole file once one was written, and a file that was reported as written
survives a power cut as far as the disk keeps its word: it is synced before it gets its name. What the bytes are is in
`docs/checkpoint-format.md`; nothing in them is pickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...errors import CheckpointError
from ...storage.files import Damaged, open_regular
from .checkpoint import Checkpoint, Written
from .claim import claim_to_continue
from .family import Family, find_family, real_path, unreadable
from .format import read_arrays, read_start
from .header import ArrayInfo, CheckpointHeader, ScalarValue

__all__ = [
    "ArrayInfo",
    "Checkpoint",
    "CheckpointHeader",
    "Found",
    "ScalarValue",
    "Written",
    "newest_checkpoint",
    "newest_header",
    "read_checkpoint",
    "read_header",
    "write_checkpoint",
]

_TURN_SECONDS = 5.0  # for writers that take turns; runs never wait for each other


class Found(msgspec.Struct, frozen=True):
    """The newest good checkpoint of a family, and a sentence for each file that was passed over."""

    checkpoint: Checkpoint
    passed: tuple[str, ...]
    at_the_path: bool  # not from an older file
    continues: bool  # no file of its lineage is newer; else somebody put an older one back in place


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint, *, keep: int = 2) -> Written:
    """Write a checkpoint to `path`, all of it or nothing, as the next one of the run whose files are there.

    The one that was there stays as `path.N`, where N is its sequence number. `keep` counts all files of the run, and what
    is beyond it is removed. What does not belong to the run is never touched; where it is at `path` itself, it is kept as
    `path.before-<time>`. The folder is made where it is missing. The header's table of arrays is made from the arrays.

    Raises `CheckpointError` where the disk is full, the folder cannot be written to, or a run holds the file; the files
    there stay as they are.
    """
    claim = claim_to_continue(path, _TURN_SECONDS)
    try:
        return claim.write(checkpoint, keep)
    finally:
        claim.release()


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read the checkpoint in exactly this file, every byte checked before any of it is returned.

    Needs no device. `kk.read_checkpoint("heat.kkpt").state` can be the `initial_state` of another run. Raises
    `CheckpointError`, which says in one sentence what is wrong.
    """
    return _read(real_path(path), path)


def read_header(path: str | os.PathLike[str]) -> CheckpointHeader:
    """The header of exactly this file, checked, and that the file has its end; the arrays are not looked at."""
    try:
        with open_regular(real_path(path)) as file:
            return read_start(file, to_the_end=True)[0]
    except (OSError, Damaged) as error:
        raise CheckpointError(unreadable(path, error)) from None


def newest_checkpoint(
    path: str | os.PathLike[str],
    accept: Callable[[CheckpointHeader], object] | None = None,
    family: Family | None = None,
) -> Found:
    """The checkpoint at `path`; where that is damaged or missing, the youngest good one of the older files of the same run.

    `accept` gets the header before any array is read, and refuses it by raising. `CheckpointError` when none is good.
    """
    family = family or find_family(real_path(path))
    passed = list(family.problems)
    for member in family.members:
        at_the_path = member is family.own
        if not member.whole and at_the_path:
            continue  # among the problems already
        if accept is not None:
            accept(member.header)
        try:
            found = _read(member.path, member.path)
        except CheckpointError as error:
            passed.append(str(error))
        else:
            continues = not at_the_path or all(older.sequence <= member.sequence for older in family.older)
            return Found(found, () if at_the_path else tuple(passed), at_the_path, continues)
    raise _none_is_good(path, passed)


def newest_header(path: str | os.PathLike[str]) -> CheckpointHeader:
    """What the newest file holds, by its header: a quick look that reads no array and so may miss damage in them."""
    family = find_family(real_path(path))
    for member in family.members:
        if member.whole:
            return member.header
    raise _none_is_good(path, list(family.problems))


def _none_is_good(path: str | os.PathLike[str], passed: list[str]) -> CheckpointError:
    if len(passed) == 1:
        return CheckpointError(passed[0])
    return CheckpointError(f"none of the {len(passed)} files of {path} is a good checkpoint: {'; '.join(passed)}")


def _read(real: Path, shown: object) -> Checkpoint:
    try:
        with open_regular(real) as file:
            header, _, source = read_start(file)
            arrays: dict[str, np.ndarray[Any, Any]] = read_arrays(header, source)
    except (OSError, Damaged) as error:
        raise CheckpointError(unreadable(shown, error)) from None
    return Checkpoint(header, arrays)
