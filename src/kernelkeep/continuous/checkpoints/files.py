"""Reading and writing checkpoint files: the state of a run, complete in one checked file, and a few older ones beside it.

Once one was written, `kill -9` at any moment leaves at least one whole file. A file that was reported as written survives a
power cut as far as the disk keeps its word: it is synced before it gets its name. `docs/checkpoint-format.md` describes the
bytes; nothing in them is pickled.
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
from .address import shown
from .checkpoint import Checkpoint, Written
from .file_set import describe_problem, find_file_set
from .header import CheckpointHeader
from .reading import read_arrays, read_start
from .run_claim import claim_to_continue
from .working_copy import fetched

_WAIT_SECONDS = 5.0  # for another writer; runs never wait for each other


class Found(msgspec.Struct, frozen=True):
    """The newest good checkpoint of a path, and a sentence for each file that was skipped."""

    checkpoint: Checkpoint
    skipped: tuple[str, ...]
    at_path: bool  # not from an older file
    continues: bool  # no file of its lineage is newer; else somebody put an older one back in place


def write_checkpoint(path: str | os.PathLike[str], checkpoint: Checkpoint, *, keep: int = 2) -> Written:
    """Write a checkpoint to `path`, all of it or nothing, as the next one of the run whose files are there.

    The one that was there stays as `path.N`, where N is its sequence number. `keep` counts all files of the run, and what
    is beyond it is removed. What does not belong to the run is never touched; where it is at `path` itself, it is kept as
    `path.before-<time>`. A missing folder is created. The header's table of arrays is made from the arrays.

    At an address it is uploaded as well. Raises `CheckpointError` where the disk is full, the folder cannot be written to, or
    a run holds the file; the files there stay as they are.
    """
    claim = claim_to_continue(path, _WAIT_SECONDS)
    try:
        written = claim.write(checkpoint, keep)
        if problem := claim.finish_uploads():
            raise problem
        return written
    finally:
        claim.release()


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read the checkpoint in exactly this file, every byte checked before any of it is returned.

    Needs no device. `kk.read_checkpoint("heat.kkpt").state` can be the `initial_state` of another run. Raises
    `CheckpointError`, which says in one sentence what is wrong.
    """
    with fetched(path) as file:
        return _read(file, shown(path))


def read_header(path: str | os.PathLike[str]) -> CheckpointHeader:
    """Read the header of exactly this file, and check that the file has its end; the arrays are not checked."""
    try:
        with fetched(path) as found, open_regular(found) as file:
            return read_start(file, to_the_end=True)[0]
    except (OSError, Damaged) as error:
        raise CheckpointError(describe_problem(shown(path), error)) from None


def newest_checkpoint(
    path: str | os.PathLike[str], accept: Callable[[CheckpointHeader], object] | None = None
) -> Found:
    """The checkpoint at `path`; where that is damaged or missing, the youngest good one of the older files of the same run.

    `accept` gets the header before any array is read, and raises to refuse it. `CheckpointError` when none is good.
    """
    with fetched(path, older=True) as file:
        return _newest(file, shown(path), accept)


def _newest(path: Path, named: str, accept: Callable[[CheckpointHeader], object] | None) -> Found:
    files = find_file_set(path)
    skipped = list(files.problems)
    for file in files.all:
        at_path = file is files.newest
        if not file.whole and at_path:
            continue  # among the problems already
        if accept is not None:
            accept(file.header)
        try:
            checkpoint = _read(file.path, file.path)
        except CheckpointError as error:
            skipped.append(str(error))
        else:
            continues = not at_path or all(older.sequence <= file.sequence for older in files.older)
            return Found(checkpoint, () if at_path else tuple(skipped), at_path, continues)
    raise _none_is_good(named, skipped)


def newest_header(path: str | os.PathLike[str]) -> CheckpointHeader:
    """The header of the newest file: a quick look that reads no array, and so may miss damage in them."""
    with fetched(path, older=True) as found:
        files = find_file_set(found)
        for file in files.all:
            if file.whole:
                return file.header
        raise _none_is_good(shown(path), list(files.problems))


def _none_is_good(path: str, problems: list[str]) -> CheckpointError:
    if len(problems) == 1:
        return CheckpointError(problems[0])
    return CheckpointError(f"none of the {len(problems)} files of {path} is a good checkpoint: {'; '.join(problems)}")


def _read(real: Path, shown: object) -> Checkpoint:
    try:
        with open_regular(real) as file:
            header, _, source = read_start(file)
            arrays: dict[str, np.ndarray[Any, Any]] = read_arrays(header, source)
    except (OSError, Damaged) as error:
        raise CheckpointError(describe_problem(shown, error)) from None
    return Checkpoint(header, arrays)
