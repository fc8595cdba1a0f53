"""The bytes of a checkpoint file, with digests over all of them. `docs/checkpoint-format.md` is the specification.

    offset  size
    0       8     magic 89 "KKPT" 0D 0A 1A
    8       4     format version, 2                      little-endian, as all numbers here
    12      4     H, the length of the header
    16      8     sequence: counts the checkpoints written under one name
    24      4     zero
    28      4     CRC-32 of bytes 0 to 28
    32      H     the header, JSON
            32    digest
            for each array of the header, in order:
                  frames until the array is complete:
                      4   S, stored length
                      4   R, length once decompressed
                      S   the bytes as they are where S = R, else one zstd frame
            32    digest
            8     "KKPT-END"
            8     the length of the file
            32    digest

A digest is the SHA-256 of every byte of the file before it. So the last one covers everything, the others tell which part is
damaged, and each byte is hashed once. Memory is bounded by the arrays themselves and one frame.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec
import numpy as np

from ...storage.files import Damaged
from .free_memory import free_memory
from .header import DTYPES, ArrayInfo, CheckpointHeader, decode_header, encode_header

if sys.version_info >= (3, 14):  # in the standard library from there on
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "FORMAT",
    "LARGEST_SEQUENCE",
    "MAGIC",
    "NewerFormat",
    "NoCheckpoint",
    "Prefix",
    "read_arrays",
    "read_prefix",
    "read_start",
    "write",
]

FORMAT = 2  # 1 differs in nothing but what its header lacks: lineage, file and body
LARGEST_SEQUENCE = (1 << 48) - 1  # no run writes so many, and the next number must fit too
MAGIC = b"\x89KKPT\r\n\x1a"
_PREFIX = struct.Struct("<8sIIQII")
_FRAME = struct.Struct("<II")
_END = struct.Struct("<8sQ")
_END_MARK = b"KKPT-END"
_DIGEST = 32
_LARGEST_HEADER = 1 << 24
LARGEST_FRAME = 1 << 26
_FRAME_BYTES = 1 << 22
# Floats that differ in every digit shrink by a few percent at ten times the cost of writing them as they are.
_WORTH = 7 / 8
_PROBE_FRAMES = 8
_LEVEL = 1
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


# --- writing


def write(
    file: BinaryIO, header: CheckpointHeader, arrays: Mapping[str, np.ndarray[Any, Any]], sequence: int
) -> tuple[int, int]:
    """Write a checkpoint; returns the bytes written and those of the arrays. ValueError says what it cannot hold."""
    stored = {name: _storable(name, array) for name, array in arrays.items()}
    infos = tuple(ArrayInfo(name, array.dtype.str, array.shape) for name, array in stored.items())
    if not 0 < sequence <= LARGEST_SEQUENCE:
        raise ValueError(f"the sequence number {sequence:,} is not between 1 and {LARGEST_SEQUENCE:,}")
    facts = encode_header(msgspec.structs.replace(header, arrays=infos))
    if len(facts) > _LARGEST_HEADER:
        raise ValueError(f"the header has {len(facts):,} bytes, and {_LARGEST_HEADER:,} is the most")
    out = _Hashed(file)
    prefix = _PREFIX.pack(MAGIC, FORMAT, len(facts), sequence, 0, 0)[:-4]
    out.write(prefix + zlib.crc32(prefix).to_bytes(4, "little"))
    out.write(facts)
    out.write_digest()
    for array in stored.values():
        _write_frames(out, array)
        out.write_digest()
    out.write(_END.pack(_END_MARK, out.nbytes + _END.size + _DIGEST))
    out.write_digest()
    return out.nbytes, sum(info.nbytes for info in infos)


class _Hashed:
    """A file that is hashed as it is written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.nbytes = 0

    def write(self, data: Any) -> None:
        self._digest.update(data)
        self._file.write(data)
        self.nbytes += len(data)

    def write_digest(self) -> None:
        self.write(self._digest.digest())


def _storable(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in little-endian, C order; a copy only where it is not so already."""
    array = np.asarray(array)
    little = array.dtype.newbyteorder("<")
    if little.str not in DTYPES or little.hasobject:
        raise ValueError(f"the array {name!r} has dtype {array.dtype}, which a checkpoint cannot hold")
    return np.asarray(array, dtype=little, order="C")


def _write_frames(out: _Hashed, array: np.ndarray[Any, Any]) -> None:
    raw = _as_bytes(array)
    packer = zstd.ZstdCompressor(level=_LEVEL)
    passed = 0  # frames until compressing is tried again: data that does not shrink rarely starts to
    for at in range(0, len(raw), _FRAME_BYTES):
        frame: Any = raw[at : at + _FRAME_BYTES]
        size = len(frame)
        if passed:
            passed -= 1
        else:
            packed = packer.compress(frame, packer.FLUSH_FRAME)
            if len(packed) < size * _WORTH:
                frame = packed
            else:
                passed = _PROBE_FRAMES - 1
        out.write(_FRAME.pack(len(frame), size))
        out.write(frame)


def _as_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data  # the buffer protocol itself knows no complex numbers


# --- reading


def read_prefix(file: BinaryIO) -> Prefix:
    """Read the first 32 bytes, and check only them."""
    data = file.read(_PREFIX.size)
    if data[: len(MAGIC)] != MAGIC[: len(data)] or not data:
        raise NoCheckpoint
    if len(data) < _PREFIX.size:
        raise Damaged(f"is cut off after {len(data)} bytes")
    _, version, header_bytes, sequence, zero, check = _PREFIX.unpack(data)
    if zlib.crc32(data[:-4]) != check:
        raise Damaged("is damaged in its first 32 bytes")
    return Prefix(version, header_bytes, sequence, zero)


def _check_prefix(prefix: Prefix) -> None:
    if prefix.version > FORMAT:
        raise NewerFormat(
            f"has format {prefix.version}, and this version of kernelkeep reads up to {FORMAT}: a later one wrote it"
        )
    if not prefix.version or prefix.zero or prefix.header_bytes > _LARGEST_HEADER:
        raise Damaged("makes no sense in its first 32 bytes")
    if prefix.sequence > LARGEST_SEQUENCE:
        raise Damaged(f"has the impossible sequence number {prefix.sequence:,} in its first 32 bytes")


class _Checked:
    """A file that is hashed as it is read, and knows its size."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = file.seek(0, os.SEEK_END)
        self.whole = self._has_its_end()
        self.at = file.seek(0)

    def _has_its_end(self) -> bool:
        tail = _END.size + _DIGEST
        if self.size < tail:
            return False
        self._file.seek(-tail, os.SEEK_END)
        return self._file.read(_END.size) == _END.pack(_END_MARK, self.size)

    def short(self, part: str) -> Damaged:
        """The error for a file with fewer bytes than `part` needs: it is cut off; or, where its end exists, `part` is damaged."""
        return Damaged(f"is damaged in {part}" if self.whole else f"is cut off after {self.size:,} bytes, in {part}")

    def read(self, nbytes: int, part: str) -> bytes:
        if nbytes > self.size - self.at:
            raise self.short(part)
        data = self._file.read(nbytes)
        if len(data) != nbytes:
            raise self.short(part)
        self._took(data)
        return data

    def read_into(self, view: memoryview, part: str) -> None:
        done = 0
        while done < len(view):
            count = self._file.readinto(view[done:])  # type: ignore[attr-defined]
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
        if self.read(_DIGEST, part) != expected:
            raise Damaged(f"is damaged in {part}")


def read_start(file: BinaryIO, *, to_the_end: bool = False) -> tuple[CheckpointHeader, Prefix, _Checked]:
    """Read and check the header; returns where reading continues. With `to_the_end`, also check that the file has its end."""
    file.seek(0)
    prefix = read_prefix(file)
    _check_prefix(prefix)
    source = _Checked(file)
    if to_the_end and not source.whole:
        raise Damaged(f"is cut off after {source.size:,} bytes, or damaged at its end")
    source.read(_PREFIX.size, "its first 32 bytes")
    facts = source.read(prefix.header_bytes, "its header")
    source.check("its header")
    try:
        return decode_header(facts), prefix, source
    except ValueError as error:
        raise Damaged(f"has a header that makes no sense: {error}") from None


def read_arrays(header: CheckpointHeader, source: _Checked) -> dict[str, np.ndarray[Any, Any]]:
    """Read all arrays, and check every byte of the file."""
    _check_size(header, source)
    arrays = {info.name: _read_array(info, source) for info in header.arrays}
    part = "its last bytes"
    end = source.read(_END.size, part)
    source.check(part)
    if end != _END.pack(_END_MARK, source.at):
        raise Damaged("makes no sense in its last bytes")
    if source.at != source.size:
        raise Damaged(f"has {source.size - source.at:,} bytes after its end")
    return arrays


def _check_size(header: CheckpointHeader, source: _Checked) -> None:
    """Raise where the file or free memory is too small for the arrays, before any memory is allocated."""
    left = source.size - source.at
    for info in header.arrays:
        if info.nbytes > left << _MOST_SHRUNK:
            raise source.short(f"the array {info.name!r}")
    needed, free = sum(info.nbytes for info in header.arrays), free_memory()
    if free is not None and needed > free:
        raise Damaged(f"needs {needed:,} bytes of memory for its arrays, and {free:,} are free")


def _read_array(info: ArrayInfo, source: _Checked) -> np.ndarray[Any, Any]:
    part = f"the array {info.name!r}"
    try:
        array = np.empty(info.shape, info.dtype)
        view = _as_bytes(array)
        while view:
            view = view[_read_frame(view, source, part) :]
    except (MemoryError, ValueError):
        raise Damaged(f"needs {info.nbytes:,} bytes of memory for {part}, more than there is") from None
    source.check(part)
    return array


def _read_frame(view: memoryview, source: _Checked, part: str) -> int:
    stored, size = _FRAME.unpack(source.read(_FRAME.size, part))
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
