"""Reading files of version 3: every block is compared with its digest, and the table of digests with its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from ...platforms import system
from ...storage.files import Damaged
from ...storage.large_file import in_parallel
from .block_digest import BLOCK_BYTES, digest_blocks, key_of
from .block_layout import BlockLayout, BlockRange
from .blocks import read_table
from .format import as_bytes
from .free_memory import free_memory
from .header import CheckpointHeader

_AT_A_TIME = 64  # blocks
Short = Callable[[str], Damaged]  # the error of a file that has too few bytes for a part


def check_memory(header: CheckpointHeader) -> None:
    """`Damaged` where the arrays need more memory than there is."""
    needed, free = sum(info.nbytes for info in header.arrays), free_memory()
    if free is not None and needed > free:
        raise Damaged(f"needs {needed:,} bytes of memory for its arrays, and {free:,} are free")


def read_blocks(header: CheckpointHeader, file: BinaryIO, start: int, short: Short) -> dict[str, np.ndarray[Any, Any]]:
    """Read all arrays, and check every byte of the file."""
    _layout_of(header, file, start, short)
    check_memory(header)
    try:
        arrays = {info.name: np.empty(info.shape, info.dtype) for info in header.arrays}
    except (MemoryError, ValueError):
        raise Damaged("needs more memory for its arrays than there is") from None
    _check(header, file, start, short, [as_bytes(array) for array in arrays.values()])
    return arrays


def check_blocks(header: CheckpointHeader, file: BinaryIO, start: int, short: Short) -> None:
    """Check every byte of a file, with little memory."""
    _check(header, file, start, short, None)


def _layout_of(header: CheckpointHeader, file: BinaryIO, start: int, short: Short) -> BlockLayout:
    """The layout that the header tells of; `Damaged` where the file has another size, so that no number is trusted."""
    layout = BlockLayout.of(start, header.arrays)
    size = file.seek(0, 2)
    if size < layout.size:
        inside = next(
            (info for info, at in zip(header.arrays, layout.offsets, strict=True) if size < at + info.nbytes), None
        )
        raise short("its last bytes" if inside is None else f"the array {inside.name!r}")
    if size > layout.size:
        raise Damaged(f"has {size - layout.size:,} bytes after its end")
    return layout


def _check(header: CheckpointHeader, file: BinaryIO, start: int, short: Short, arrays: list[memoryview] | None) -> None:
    layout, descriptor, key = _layout_of(header, file, start, short), file.fileno(), key_of(header.lineage)
    table = read_table(descriptor, layout, system.read_at(descriptor, start, 0))
    if table is None:
        raise Damaged("is damaged in its last bytes")

    def check(these: BlockRange) -> None:
        info = header.arrays[these.array]
        nbytes = min(these.count * BLOCK_BYTES, info.nbytes - these.first * BLOCK_BYTES)
        out = memoryview(bytearray(nbytes)) if arrays is None else layout.part(arrays[these.array], these)
        done = 0
        while done < nbytes:
            count = system.read_into(descriptor, out[done:], layout.offset(these) + done)
            if not count:
                raise short(f"the array {info.name!r}")
            done += count
        if not np.array_equal(digest_blocks(out, key), table[layout.table_rows(these)]):
            raise Damaged(f"is damaged in the array {info.name!r}")

    in_parallel(check, layout.ranges(_AT_A_TIME))
    for info, at, end in zip(header.arrays, layout.offsets, (*layout.offsets[1:], layout.table), strict=True):
        padding = end - at - info.nbytes
        if system.read_at(descriptor, padding, end - padding) != bytes(padding):
            raise Damaged(f"is damaged behind the array {info.name!r}")
