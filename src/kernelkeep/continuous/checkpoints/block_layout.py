"""Where everything is in a file of version 3: at offsets that depend on the header's length and the arrays' sizes alone.

Two checkpoints of a run have the same layout, so a file can be brought from one to the other by overwriting some of its blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import msgspec

from .block_digest import BLOCK_BYTES, DIGEST_BYTES, block_count
from .format import DIGEST_BYTES as SHA_BYTES
from .format import END, PREFIX
from .header import ArrayInfo

ALIGNMENT = 4096  # of arrays and of the table, so that a disk takes them past the system's cache
_SPARE_HEADER_BYTES = 256  # numbers in it grow


class BlockRange(msgspec.Struct, frozen=True):
    """Blocks of an array that follow each other."""

    array: int  # its number in the header
    first: int
    count: int


class BlockLayout(msgspec.Struct, frozen=True):
    """The layout of a file of version 3."""

    start: int  # what is before the first array: prefix, header, digest
    sizes: tuple[int, ...]  # bytes of each array
    offsets: tuple[int, ...]  # where each begins
    rows: tuple[int, ...]  # the row of each one's first block in the table
    table: int  # where the digests of the blocks begin
    blocks: int  # in all
    size: int  # of the file

    @classmethod
    def of(cls, start: int, infos: Sequence[ArrayInfo]) -> BlockLayout:
        sizes = tuple(info.nbytes for info in infos)
        ends = list(itertools.accumulate((_aligned(size) for size in sizes), initial=start))
        rows = list(itertools.accumulate(map(block_count, sizes), initial=0))
        size = ends[-1] + rows[-1] * DIGEST_BYTES + END.size + SHA_BYTES
        return cls(start, sizes, tuple(ends[:-1]), tuple(rows[:-1]), ends[-1], rows[-1], size)

    def ranges(self, most: int) -> Iterator[BlockRange]:
        """All blocks in order, at most so many at a time."""
        for array, size in enumerate(self.sizes):
            blocks = block_count(size)
            for first in range(0, blocks, most):
                yield BlockRange(array, first, min(most, blocks - first))

    def part(self, data: memoryview, these: BlockRange) -> memoryview:
        """The bytes of some blocks, of an array's bytes."""
        return data[these.first * BLOCK_BYTES : (these.first + these.count) * BLOCK_BYTES]

    def offset(self, these: BlockRange) -> int:
        """Where blocks are in the file."""
        return self.offsets[these.array] + these.first * BLOCK_BYTES

    def table_rows(self, these: BlockRange) -> slice:
        """Where the digests of blocks are in the table."""
        row = self.rows[these.array] + these.first
        return slice(row, row + these.count)


def padded_header(facts: bytes) -> bytes:
    """A header with spaces behind it, so that the first array begins at a multiple of 4096, also when its numbers have grown."""
    around = PREFIX.size + SHA_BYTES
    return facts.ljust(_aligned(around + len(facts) + _SPARE_HEADER_BYTES) - around)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
