"""A description of a checkpoint file and the older ones beside it, for `kernelkeep checkpoint show`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...errors import CheckpointError
from .address import is_address, shown
from .file_set import find_file_set, real_path
from .files import read_checkpoint
from .header import CheckpointHeader, plain_number
from .working_copy import fetched

_CHUNK_ITEMS = 1 << 20


class ArrayFacts(msgspec.Struct, frozen=True):
    """An array and the range of its values, NaNs left out; None where there are none, or no order among them."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    minimum: bool | int | float | str | None
    maximum: bool | int | float | str | None
    nans: int


class FileFacts(msgspec.Struct, frozen=True):
    """A file of a checkpoint; `problem` says why it is not whole, and then `header` is None.

    `address` is where it is in a shared store; then the path is that of a copy which is gone.
    """

    path: Path
    nbytes: int
    whole: bool
    problem: str
    header: CheckpointHeader | None
    address: str = ""


class Description(msgspec.Struct, frozen=True):
    """A checkpoint file, checked to its last byte, and the other files of the same checkpoint, checked as well."""

    file: FileFacts
    arrays: tuple[ArrayFacts, ...]
    raw_bytes: int
    others: tuple[FileFacts, ...]

    @property
    def ratio(self) -> float:
        """How many times larger the arrays are than the file."""
        return self.raw_bytes / self.file.nbytes if self.file.nbytes else 0.0


def describe(path: str | os.PathLike[str]) -> Description:
    """Describe a checkpoint. A damaged one is described as such; `CheckpointError` where there is nothing at all."""
    if not isinstance(path, str) or not is_address(path):
        return _describe(real_path(path), path)
    with fetched(path, older=True, all_older=True) as found:
        made = _describe(found, shown(path))
    folder = shown(path).rpartition("/")[0]

    def at_address(file: FileFacts) -> FileFacts:
        where = f"{folder}/{file.path.name}"
        return msgspec.structs.replace(file, address=where, problem=file.problem.replace(str(file.path), where))

    return msgspec.structs.replace(
        made, file=at_address(made.file), others=tuple(at_address(other) for other in made.others)
    )


def _describe(path: Path, named: object) -> Description:
    files = find_file_set(path)
    if not files.exists:
        raise CheckpointError(f"there is no checkpoint {named}")
    file, loaded = _inspect(files.path)
    arrays = tuple(_facts(name, array) for name, array in loaded.items())
    raw_bytes = sum(array.nbytes for array in arrays)
    return Description(file, arrays, raw_bytes, tuple(_inspect(older.path)[0] for older in files.older))


def _inspect(path: Path) -> tuple[FileFacts, dict[str, np.ndarray[Any, Any]]]:
    try:
        nbytes = path.stat().st_size
    except OSError:
        nbytes = 0
    try:
        found = read_checkpoint(path)
    except CheckpointError as error:
        return FileFacts(path, nbytes, False, str(error), None), {}
    return FileFacts(path, nbytes, True, "", found.header), dict(found.arrays)


def _facts(name: str, array: np.ndarray[Any, Any]) -> ArrayFacts:
    flat = array.reshape(-1)
    nans, low, high = 0, None, None
    ordered = flat.dtype.kind != "c"
    for at in range(0, flat.size, _CHUNK_ITEMS):  # an array may be as large as memory
        chunk = flat[at : at + _CHUNK_ITEMS]
        if flat.dtype.kind in "fc":
            missing = np.isnan(chunk)
            nans += int(missing.sum())
            chunk = chunk[~missing]
        if ordered and chunk.size:
            least, most = chunk.min().item(), chunk.max().item()
            low = least if low is None else min(low, least)
            high = most if high is None else max(high, most)
    low, high = (None if value is None else plain_number(value) for value in (low, high))
    return ArrayFacts(name, array.dtype.str, array.shape, array.nbytes, low, high, nans)
