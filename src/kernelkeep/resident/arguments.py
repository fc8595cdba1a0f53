"""What users give to a resident grid, checked: arrays, sizes, rows of arguments."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..devices.array import Array
from ..devices.base import Device
from ..errors import ArgumentError
from ..programs.portable import PortableKernel
from ..programs.signature import DTYPES
from .argument_checks import checked
from .protocol import argument_offsets
from .task import WIDE, PreparedTask, Task

_DEFAULT_THREADS = 128
_LEAST_THREADS = 32
_LEAST_SLOT, _MOST_SLOT = 16, 512
_MOST_ENTRIES = 1 << 20
_GRAPH_BYTES = 16  # of the record that asks for a graph
_EXTRA_THREADS = 64  # the block's reader and writer


def array_dtype(name: str, array: Array) -> str:
    """The short name of an array's type."""
    dtype = array.dtype.str[1:]
    if not isinstance(name, str) or not name.isidentifier() or name.startswith(("kk", "__")):
        raise ArgumentError(
            f"the name of an array must be an identifier that does not begin with kk or __, got {name!r}"
        )
    if dtype not in DTYPES:
        raise ArgumentError(f"array {name} must have a dtype of {', '.join(DTYPES)}, got {array.dtype}")
    return str(dtype)


def threads_of(tasks: Mapping[str, Any], wanted: int | None, device: Device) -> int:
    """The number of work-items in a block: as wanted, as the kernels among the tasks have it, or the default."""
    groups = set()
    for given in tasks.values():
        body = given.body if isinstance(given, Task) else given
        if isinstance(body, PortableKernel):
            groups.add(body.signature.group or (_DEFAULT_THREADS, 1, 1))
    if wanted is None:
        if len(groups) > 1:
            raise ArgumentError(
                f"the tasks have groups of different sizes, {sorted(groups)}: pass threads=, or give the kernels the same group"
            )
        x, y, z = groups.pop() if groups else (_DEFAULT_THREADS, 1, 1)
        if (y, z) != (1, 1):
            raise ArgumentError(f"tasks must have groups of one dimension, got {(x, y, z)}")
        wanted = x
    most = device.capabilities.max_group_items - _EXTRA_THREADS
    if not isinstance(wanted, int) or not _LEAST_THREADS <= wanted <= most or wanted % 32:
        raise ArgumentError(f"threads must be a multiple of 32 from {_LEAST_THREADS} to {most}, got {wanted!r}")
    return wanted


def timeline_entries(wanted: int) -> int:
    """How many entries of its timeline a block keeps."""
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not 0 <= wanted <= _MOST_ENTRIES:
        raise ArgumentError(f"timeline must be 0 to {_MOST_ENTRIES} entries for each block, got {wanted!r}")
    return wanted


def slot_bytes(tasks: Iterable[PreparedTask], argument_bytes: int) -> int:
    """The size of a record that has room for the arguments of each of the tasks."""
    if type(argument_bytes) is not int or not 0 <= argument_bytes <= _MOST_SLOT - 8:
        raise ArgumentError(f"argument_bytes must be 0 to {_MOST_SLOT - 8}, got {argument_bytes!r}")
    needed = max(_LEAST_SLOT, _GRAPH_BYTES, argument_bytes + 8)
    for task in tasks:
        _, end = argument_offsets(task.codes)
        if end > _MOST_SLOT:
            raise ArgumentError(
                f"task {task.parts.name} has {end - 8} bytes of arguments, and {_MOST_SLOT - 8} is the most"
            )
        needed = max(needed, end, task.row_dtype.itemsize + 8)
    return 1 << (needed - 1).bit_length()


def pack_record(task: PreparedTask, args: Sequence[Any], whole_grid: bool | None, slot: int) -> bytes:
    """A task with its arguments as it would lie in a ring with slots of that size."""
    name = task.parts.name
    if len(args) != len(task.names):
        plural = "" if len(task.names) == 1 else "s"
        names = f" ({', '.join(task.names)})" if task.names else ""
        raise ArgumentError(f"task {name} takes {len(task.names)} argument{plural}{names}, got {len(args)}")
    wide = task.whole_grid if whole_grid is None else whole_grid
    record = bytearray(slot)
    struct.pack_into("<II", record, 0, task.number | (WIDE if wide else 0), 0)
    for (argument, _, at), code, value in zip(task.parts.arguments, task.codes, args, strict=True):
        try:
            struct.pack_into("<" + code, record, at, checked(argument, code, value))
        except (TypeError, OverflowError) as error:
            raise ArgumentError(f"task {name}: {error}") from None
    return bytes(record)


def argument_error(task: PreparedTask, args: Sequence[Any], error: Exception) -> ArgumentError:
    """Why a ring refused the arguments of a task. The ring counts arguments; the error says their names."""
    try:
        pack_record(task, args, None, _MOST_SLOT)
    except ArgumentError as named:
        return named
    return ArgumentError(f"task {task.parts.name}: {error}")


def rows_of(task: PreparedTask, rows: Any) -> np.ndarray[Any, Any]:
    """Rows of arguments as they lie in the ring."""
    dtype = task.row_dtype
    name = task.parts.name
    if not task.names:
        if isinstance(rows, int | np.integer) and not isinstance(rows, bool) and rows >= 0:
            try:
                return np.zeros(int(rows), "V1")
            except (MemoryError, ValueError):
                raise ArgumentError(
                    f"rows for task {name} must fit into memory, a byte for each task, got {rows}: submit fewer at once"
                ) from None
        raise ArgumentError(f"task {name} takes no arguments: rows must be the number of tasks, got {rows!r}")
    if isinstance(rows, np.ma.MaskedArray):
        raise ArgumentError(
            f"rows for task {name} must be an array without a mask, got a masked array: pass those to run, such as "
            "rows.compressed()"
        )
    if isinstance(rows, np.ndarray) and rows.dtype == dtype and rows.ndim == 1:
        return np.ascontiguousarray(rows)
    try:
        given = np.asarray(rows)
    except ValueError as error:
        raise ArgumentError(f"rows for task {name} cannot be read: {error}") from None
    if given.dtype.names is not None:
        if given.ndim != 1:
            raise ArgumentError(f"rows for task {name} must be records in one dimension, got shape {given.shape}")
        if set(given.dtype.names) != set(task.names):
            raise ArgumentError(
                f"rows for task {name} must have the fields {', '.join(task.names)}, got {given.dtype.names}"
            )
        columns = [given[one] for one in task.names]
        for one, column in zip(task.names, columns, strict=True):
            if column.ndim != 1:
                raise ArgumentError(
                    f"field {one} of the rows for task {name} must be one number, got an array of shape {column.shape[1:]}"
                )
    else:
        if given.ndim == 1 and len(task.names) == 1:
            given = given[:, None]
        if given.ndim != 2 or given.shape[1] != len(task.names):
            columns_text = "one column" if len(task.names) == 1 else f"{len(task.names)} columns"
            raise ArgumentError(
                f"rows for task {name} must have {columns_text} ({', '.join(task.names)}), got shape {given.shape}"
            )
        columns = [given[:, i] for i in range(len(task.names))]
    found = np.zeros(len(given), dtype)
    for one, column in zip(task.names, columns, strict=True):
        _fill(found[one], column, f"argument {one} of task {name}")
    return found


def _fill(field: np.ndarray[Any, Any], column: np.ndarray[Any, Any], what: str) -> None:
    """Convert a column of rows, and refuse the first value that does not fit."""
    if column.dtype.kind not in "biuf":
        raise ArgumentError(f"{what} must be {field.dtype}, got rows of {column.dtype}")
    with np.errstate(all="ignore"):
        field[...] = column.astype(field.dtype, casting="unsafe")
    wrong = field != column if field.dtype.kind in "iu" else np.isinf(field) != np.isinf(column)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ArgumentError(f"{what} must be {field.dtype}, and row {row} does not fit: {column[row].item()!r}")
