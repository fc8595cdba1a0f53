"""The arrays of a resident grid in a checkpoint, and how far its blocks were.

The file is that of any checkpoint, `kk.read_checkpoint` reads it. `iteration` is the number of tasks done, `program_digest` the
journal's id, and a scalar `done N` tells how many tasks block N had done.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..continuous.checkpoints.checkpoint import Checkpoint, Written
from ..continuous.checkpoints.file_set import find_file_set, real_path
from ..continuous.checkpoints.files import write_checkpoint
from ..continuous.checkpoints.header import CheckpointHeader, ScalarValue
from ..devices.array import Array
from ..devices.base import Device
from ..errors import ArgumentError, CheckpointError
from ..escaping import escaped
from .argument_checks import check_folder

_COUPLING = "resident"
_DONE = "done "


def save_arrays(
    path: str | os.PathLike[str],
    device: Device,
    arrays: Mapping[str, Array],
    tasks: Sequence[str],
    done: Sequence[int],
    journal: str,
) -> Written:
    """Write the arrays of a grid that is paused."""
    _check_replaceable(path)
    shapes = repr(sorted((name, one.dtype.str, one.shape) for name, one in arrays.items()))
    header = CheckpointHeader(
        program="resident grid of " + ", ".join(tasks),
        program_digest=journal,
        layout_digest=hashlib.sha256(shapes.encode()).hexdigest(),
        coupling=_COUPLING,
        items=0,
        iteration=sum(done),
        generation=sum(done),
        scalars={f"{_DONE}{number}": ScalarValue.of(np.int64(count)) for number, count in enumerate(done)},
        device=device.spec,
        device_name=device.info.name,
    )
    return write_checkpoint(path, Checkpoint(header, {name: one.numpy() for name, one in arrays.items()}))


def _check_replaceable(path: str | os.PathLike[str]) -> None:
    """Raise unless a checkpoint may be written there: nothing is there yet, or what a resident grid saved."""
    files = find_file_set(real_path(path))
    check_folder(Path(path), "checkpoint")
    if not files.exists:
        return
    if files.newest is None:
        problem = files.problems[0]
    elif files.newest.header.coupling != _COUPLING:
        problem = f"it is of {escaped(files.newest.header.program)}"
    else:
        return
    raise CheckpointError(
        f"{path} exists already, and is no checkpoint that a resident grid saved ({problem}): pass another path, or remove it"
    )


def saved_done(checkpoint: Checkpoint) -> tuple[str, list[int]]:
    """(id of the journal or "", how many tasks each block had done) of a checkpoint of a resident grid."""
    if checkpoint.coupling != _COUPLING:
        raise ArgumentError(f"arrays must be a checkpoint that Resident.save wrote, got one of {checkpoint.program}")
    scalars: dict[str, Any] = checkpoint.scalars
    counts = {int(name.removeprefix(_DONE)): int(value) for name, value in scalars.items() if name.startswith(_DONE)}
    return checkpoint.header.program_digest, [counts[number] for number in sorted(counts)]
