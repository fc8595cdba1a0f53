"""Reading the bytes of a checkpoint file (`format.py`): every byte is checked before any of it is returned."""

from __future__ import annotations

import hashlib
import os
import zlib
from typing import Any, BinaryIO

import msgspec
import numpy as np

from ...storage.files import Damaged
from .block_reading import check_blocks, check_memory, read_blocks
from .blocks import BLOCK_FORMAT
from .format import (
    DIGEST_BYTES,
    END,
    END_MARK,
    FRAME,
    LARGEST_FRAME,
    LARGEST_HEADER,
    LARGEST_SEQUENCE,
    MAGIC,
    NEWEST_FORMAT,
    PREFIX,
    as_bytes,
    zstd,
)
from .header import ArrayInfo, CheckpointHeader, decode_header

_CHUNK_BYTES = 1 << 20
_MOST_SHRUNK = 16  # bits: zstd stores at most 2**17 bytes in 4


class NoCheckpoint(Damaged):
    """A file that does not begin as a checkpoint does."""

    def __init__(self) -> None:
        super().__init__("is not a checkpoint")


class NewerFormat(Damaged):
    """A file that a later kernelkeep wrote."""


class Prefix(msgspec.Struct, frozen=True):
    """The first 32 bytes, which every version of the format has."""

    version: int
    header_bytes: int
    sequence: int
    zero: int


def read_prefix(file: BinaryIO) -> Prefix:
    """Read the first 32 bytes, and check only them."""
    data = file.read(PREFIX.size)
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        raise NoCheckpoint
    if len(data) < PREFIX.size:
        raise Damaged(f"is cut off after {len(data)} bytes")
    _, version, header_bytes, sequence, zero, check = PREFIX.unpack(data)
    if zlib.crc32(data[:-4]) != check:
        raise Damaged("is damaged in its first 32 bytes")
    return Prefix(version, header_bytes, sequence, zero)


def _check_prefix(prefix: Prefix) -> None:
    if prefix.version > NEWEST_FORMAT:
        raise NewerFormat(
            f"has format {prefix.version}, and this version of kernelkeep reads up to {NEWEST_FORMAT}: a later one wrote it"
        )
    if not prefix.version or prefix.zero or prefix.header_bytes > LARGEST_HEADER:
        raise Damaged("makes no sense in its first 32 bytes")
    if prefix.sequence > LARGEST_SEQUENCE:
        raise Damaged(f"has the impossible sequence number {prefix.sequence:,} in its first 32 bytes")


class Checked:
    """A file that is hashed as it is read, and knows its size and the version of its format."""

    def __init__(self, file: BinaryIO, version: int = 1) -> None:
        self.file = file
        self.version = version
        self._digest = hashlib.sha256()
        self.size = file.seek(0, os.SEEK_END)
        self.whole = self._has_its_end()
        self.at = file.seek(0)

    def _has_its_end(self) -> bool:
        tail = END.size + DIGEST_BYTES
        if self.size < tail:
            return False
        self.file.seek(-tail, os.SEEK_END)
        return self.file.read(END.size) == END.pack(END_MARK, self.size)

    def short(self, part: str) -> Damaged:
        """The error for a file with fewer bytes than `part` needs: it is cut off; or, where its end exists, `part` is damaged."""
        return Damaged(f"is damaged in {part}" if self.whole else f"is cut off after {self.size:,} bytes, in {part}")

    def read(self, nbytes: int, part: str) -> bytes:
        if nbytes > self.size - self.at:
            raise self.short(part)
        data = self.file.read(nbytes)
        if len(data) != nbytes:
            raise self.short(part)
        self._took(data)
        return data

    def read_into(self, view: memoryview, part: str) -> None:
        done = 0
        while done < len(view):
            count = self.file.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise self.short(part)
            done += count
        self._took(view)

    def _took(self, data: bytes | memoryview) -> None:
        self._digest.update(data)
        self.at += len(data)

    def check(self, part: str) -> None:
        """Compare the digest that comes next."""
        expected = self._digest.digest()
        if self.read(DIGEST_BYTES, part) != expected:
            raise Damaged(f"is damaged in {part}")


def read_start(file: BinaryIO, *, to_the_end: bool = False) -> tuple[CheckpointHeader, Prefix, Checked]:
    """Read and check the header; returns where reading continues. With `to_the_end`, also check that the file has its end."""
    file.seek(0)
    prefix = read_prefix(file)
    _check_prefix(prefix)
    source = Checked(file, prefix.version)
    if to_the_end and not source.whole:
        raise Damaged(f"is cut off after {source.size:,} bytes, or damaged at its end")
    source.read(PREFIX.size, "its first 32 bytes")
    facts = source.read(prefix.header_bytes, "its header")
    source.check("its header")
    try:
        return decode_header(facts), prefix, source
    except ValueError as error:
        raise Damaged(f"has a header that makes no sense: {error}") from None


def read_arrays(header: CheckpointHeader, source: Checked) -> dict[str, np.ndarray[Any, Any]]:
    """Read all arrays, and check every byte of the file."""
    if source.version == BLOCK_FORMAT:
        return read_blocks(header, source.file, source.at, source.short)
    _check_size(header, source)
    arrays = {info.name: _read_array(info, source) for info in header.arrays}
    part = "its last bytes"
    end = source.read(END.size, part)
    source.check(part)
    if end != END.pack(END_MARK, source.at):
        raise Damaged("makes no sense in its last bytes")
    if source.at != source.size:
        raise Damaged(f"has {source.size - source.at:,} bytes after its end")
    return arrays


def check_whole(file: BinaryIO) -> None:
    """Check every byte of a file, with little memory."""
    header, _, source = read_start(file)
    if source.version == BLOCK_FORMAT:
        check_blocks(header, source.file, source.at, source.short)
        return
    while (left := source.size - source.at) > DIGEST_BYTES:
        source.read(min(left - DIGEST_BYTES, _CHUNK_BYTES), "its arrays")
    source.check("its last bytes")


def _check_size(header: CheckpointHeader, source: Checked) -> None:
    """Raise where the file or free memory is too small for the arrays, before any memory is allocated."""
    left = source.size - source.at
    for info in header.arrays:
        if info.nbytes > left << _MOST_SHRUNK:
            raise source.short(f"the array {info.name!r}")
    check_memory(header)


def _read_array(info: ArrayInfo, source: Checked) -> np.ndarray[Any, Any]:
    part = f"the array {info.name!r}"
    try:
        array = np.empty(info.shape, info.dtype)
        view = as_bytes(array)
        while view:
            view = view[_read_frame(view, source, part) :]
    except (MemoryError, ValueError):
        raise Damaged(f"needs {info.nbytes:,} bytes of memory for {part}, more than there is") from None
    source.check(part)
    return array


def _read_frame(view: memoryview, source: Checked, part: str) -> int:
    stored, size = FRAME.unpack(source.read(FRAME.size, part))
    if not 0 < size <= min(LARGEST_FRAME, len(view)) or not 0 < stored <= size:
        raise Damaged(f"is damaged in {part}")
    if stored == size:
        source.read_into(view[:size], part)
        return int(size)
    data = source.read(stored, part)
    frame = zstd.ZstdDecompressor()
    try:
        raw = frame.decompress(data, size + 1)  # no more than stated: a few bytes of zstd can expand to gigabytes
    except zstd.ZstdError:
        raise Damaged(f"is damaged in {part}") from None
    if len(raw) != size or not frame.eof or frame.unused_data:
        raise Damaged(f"is damaged in {part}")
    view[:size] = raw
    return int(size)
