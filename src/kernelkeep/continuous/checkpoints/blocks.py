"""Writing files of version 3: arrays as they are, in blocks of 64 KiB, each with a digest in a table behind them.

A new file takes all blocks; those of zeros only are left out, and a file system that can does not store them. A file of the
same run and layout that is no longer needed takes only the blocks that differ from its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import msgspec
import numpy as np

from ...platforms import system
from ...storage.large_file import LargeFile, in_parallel
from .arriving import Arriving
from .block_digest import BLOCK_BYTES, Digests, digest_blocks, key_of
from .block_layout import BlockLayout, BlockRange, padded_header
from .format import END, END_MARK, as_bytes, beginning, described, storable
from .header import CheckpointHeader, encode_header

BLOCK_FORMAT = 3
LEAST_BYTES = 1 << 20  # of the arrays; smaller states are written faster in one piece
_AT_A_TIME = 64  # blocks: 4 MiB, of which a disk takes a few side by side at its full speed
_SAMPLED = 32
_MOSTLY_KNOWN = 0.9  # of the digests: those of the last blocks of arrays may be missing
# Of the blocks; beyond that a new file costs little more, and takes nothing away from the older ones.
_MOST_CHANGED = 1 / 2


class BlockContent:
    """A checkpoint that is about to be written.

    `arriving` tells of arrays that are still on their way. `expects_much`: the last checkpoint differed in most of its blocks
    from the one before it, so this one probably does, and the first blocks are written before the last have come.
    """

    def __init__(
        self,
        header: CheckpointHeader,
        arrays: Mapping[str, np.ndarray[Any, Any]],
        arriving: Arriving | None = None,
        *,
        expects_much: bool = False,
    ) -> None:
        stored = storable(arrays)
        self.infos = described(stored)
        self.key = key_of(header.lineage)
        self._facts = padded_header(encode_header(msgspec.structs.replace(header, arrays=self.infos)))
        self.layout = BlockLayout.of(len(self._start(1)), self.infos)
        self._data = [as_bytes(array) for array in stored.values()]
        self._arriving = arriving
        self._table: Digests = np.empty((self.layout.blocks, 4), "<u4")
        self._known = np.zeros(self.layout.blocks, bool)  # which rows of the table are digests
        if arriving is not None and arriving.digests is not None:
            for row, info in zip(self.layout.rows, self.infos, strict=True):
                digests = arriving.digests[info.name]
                self._table[row : row + len(digests)] = digests
                self._known[row : row + len(digests)] = True
        self._expects_much = expects_much
        self._compared: Digests | None = None
        self.written_bytes = 0

    @property
    def raw_bytes(self) -> int:
        """The bytes of the arrays."""
        return sum(self.layout.sizes)

    def _start(self, sequence: int) -> bytes:
        start = beginning(BLOCK_FORMAT, self._facts, sequence)
        return start + hashlib.sha256(start).digest()

    def fill(self, file: BinaryIO, sequence: int) -> None:
        """Write a new file."""
        start = self._start(sequence)  # finds what is wrong before anything is written
        zero = digest_blocks(memoryview(bytes(BLOCK_BYTES)), self.key)
        with LargeFile(file.fileno()) as large:
            large.begin(self.layout.size)
            for these in self._write(large, np.broadcast_to(zero, self._table.shape), start):
                part = self.layout.part(self._data[these.array], these)  # the last block of an array may be shorter
                large.leave_out(self.layout.offset(these), len(part))

    def worth_patching(self, table: Digests) -> bool:
        """Whether few enough blocks differ from those of a file with this table."""
        self._compared = table
        if self._known.mean() < _MOSTLY_KNOWN:
            if self._expects_much or self._mostly_differs(table):
                return False
            in_parallel(self._digest, self.layout.ranges(_AT_A_TIME))
        return not self.differs_much

    @property
    def differs_much(self) -> bool:
        """Whether most blocks differ from those of the older file that was looked at, as far as they are digested."""
        if self._compared is None:
            return False
        changed = np.count_nonzero((self._table != self._compared).any(axis=1) | ~self._known)
        return bool(changed > _MOST_CHANGED * self.layout.blocks)

    def _mostly_differs(self, table: Digests) -> bool:
        """Whether most of a few blocks differ: then it is not worth digesting all of them before any is written."""
        every = max(1, self.layout.blocks // _SAMPLED)
        sample = [BlockRange(these.array, these.first, 1) for these in self.layout.ranges(every)]
        for these in sample:
            self._digest(these)
        rows = np.array([self.layout.table_rows(these).start for these in sample])
        changed = np.count_nonzero((self._table[rows] != table[rows]).any(axis=1))
        return bool(changed > 3 / 4 * len(sample))

    def patch(self, descriptor: int, table: Digests, sequence: int) -> None:
        """Bring a file of the same layout, whose blocks have the digests in `table`, to this checkpoint."""
        with LargeFile(descriptor) as file:
            self._write(file, table, self._start(sequence))

    def _digest(self, these: BlockRange) -> None:
        """Digest blocks that are not digested yet, when they are there."""
        rows = self.layout.table_rows(these)
        if not self._known[rows].all():
            self._wait_for(these)
            self._table[rows] = digest_blocks(self.layout.part(self._data[these.array], these), self.key)
            self._known[rows] = True

    def _wait_for(self, these: BlockRange) -> None:
        if self._arriving is not None:
            end = min((these.first + these.count) * BLOCK_BYTES, self.layout.sizes[these.array])
            self._arriving.wait(self.infos[these.array].name, end)

    def _write(self, file: LargeFile, there: Digests, start: bytes) -> list[BlockRange]:
        """Write the blocks that differ from those that are there; returns those that do not."""
        counts: list[int] = []
        same: list[BlockRange] = []

        def write_changed(these: BlockRange) -> None:
            self._digest(these)
            rows = self.layout.table_rows(these)
            changed = (self._table[rows] != there[rows]).any(axis=1)
            for run in _runs(changed, these):
                self._wait_for(run)
                data = self.layout.part(self._data[run.array], run)
                file.write(data, self.layout.offset(run))
                counts.append(len(data))
            same.extend(_runs(~changed, these))

        in_parallel(write_changed, self.layout.ranges(_AT_A_TIME))
        tail = self._table.tobytes() + END.pack(END_MARK, self.layout.size)
        tail += hashlib.sha256(start + tail).digest()
        file.write(memoryview(tail), self.layout.table)
        file.write(memoryview(start), 0)
        self.written_bytes = sum(counts) + len(start) + len(tail)
        return same


def _runs(chosen: np.ndarray[Any, Any], these: BlockRange) -> Iterator[BlockRange]:
    """Some of these blocks, as ranges: neighbours go to the disk together."""
    if chosen.all():
        yield these
        return
    edges = np.flatnonzero(np.diff(chosen.astype("i1"), prepend=0, append=0))
    for first, end in edges.reshape(-1, 2).tolist():
        yield BlockRange(these.array, these.first + first, end - first)


def read_table(descriptor: int, layout: BlockLayout, start: bytes) -> Digests | None:
    """The digests in a file of this layout that begins with `start`; None where it is not as it was written."""
    tail = system.read_at(descriptor, layout.size - layout.table + 1, layout.table)
    ending = END.pack(END_MARK, layout.size)
    body, digest = tail[:-32], tail[-32:]
    if len(tail) != layout.size - layout.table or body[-len(ending) :] != ending:
        return None
    if hashlib.sha256(start + body).digest() != digest:
        return None
    return np.frombuffer(body[: -len(ending)], "<u4").reshape(-1, 4)
