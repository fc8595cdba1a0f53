"""The bytes of a checkpoint file, with digests over all of them. `docs/checkpoint-format.md` is the specification.

This is version 2, compressed, for states below a mebibyte and for files that go over a network; `blocks.py` has version 3.

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
import struct
import sys
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec
import numpy as np

from .header import DTYPES, ArrayInfo, CheckpointHeader, encode_header

if sys.version_info >= (3, 14):  # in the standard library from there on
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "DIGEST_BYTES",
    "END",
    "END_MARK",
    "FORMAT",
    "FRAME",
    "LARGEST_FRAME",
    "LARGEST_HEADER",
    "LARGEST_SEQUENCE",
    "MAGIC",
    "NEWEST_FORMAT",
    "PREFIX",
    "as_bytes",
    "beginning",
    "described",
    "storable",
    "write",
    "zstd",
]

FORMAT = 2  # 1 differs in nothing but what its header lacks: lineage, file and body
NEWEST_FORMAT = 3
LARGEST_SEQUENCE = (1 << 48) - 1  # no run writes so many, and the next number must fit too
MAGIC = b"\x89KKPT\r\n\x1a"
PREFIX = struct.Struct("<8sIIQII")
FRAME = struct.Struct("<II")
END = struct.Struct("<8sQ")
END_MARK = b"KKPT-END"
DIGEST_BYTES = 32
LARGEST_HEADER = 1 << 24
LARGEST_FRAME = 1 << 26
_FRAME_BYTES = 1 << 22
# Floats that differ in every digit shrink by a few percent at ten times the cost of writing them as they are.
_WORTH = 7 / 8
_PROBE_FRAMES = 8
_LEVEL = 1


def write(
    file: BinaryIO, header: CheckpointHeader, arrays: Mapping[str, np.ndarray[Any, Any]], sequence: int
) -> tuple[int, int]:
    """Write a checkpoint; returns the bytes written and those of the arrays. ValueError says what it cannot hold."""
    stored = storable(arrays)
    infos = described(stored)
    out = _Hashed(file)
    out.write(beginning(FORMAT, encode_header(msgspec.structs.replace(header, arrays=infos)), sequence))
    out.write_digest()
    for array in stored.values():
        _write_frames(out, array)
        out.write_digest()
    out.write(END.pack(END_MARK, out.nbytes + END.size + DIGEST_BYTES))
    out.write_digest()
    return out.nbytes, sum(info.nbytes for info in infos)


def beginning(version: int, facts: bytes, sequence: int) -> bytes:
    """The first 32 bytes of a file and its header; ValueError where one of them is impossible."""
    if not 0 < sequence <= LARGEST_SEQUENCE:
        raise ValueError(f"the sequence number {sequence:,} is not between 1 and {LARGEST_SEQUENCE:,}")
    if len(facts) > LARGEST_HEADER:
        raise ValueError(f"the header has {len(facts):,} bytes, and {LARGEST_HEADER:,} is the most")
    prefix = PREFIX.pack(MAGIC, version, len(facts), sequence, 0, 0)[:-4]
    return prefix + zlib.crc32(prefix).to_bytes(4, "little") + facts


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


def storable(arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays as a file holds them; ValueError where it cannot."""
    return {name: _storable(name, array) for name, array in arrays.items()}


def described(stored: Mapping[str, np.ndarray[Any, Any]]) -> tuple[ArrayInfo, ...]:
    """What a header says of arrays."""
    return tuple(ArrayInfo(name, array.dtype.str, array.shape) for name, array in stored.items())


def _storable(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in little-endian, C order; a copy only where it is not so already."""
    array = np.asarray(array)
    little = array.dtype.newbyteorder("<")
    if little.str not in DTYPES or little.hasobject:
        raise ValueError(f"the array {name!r} has dtype {array.dtype}, which a checkpoint cannot hold")
    return np.asarray(array, dtype=little, order="C")


def _write_frames(out: _Hashed, array: np.ndarray[Any, Any]) -> None:
    raw = as_bytes(array)
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
        out.write(FRAME.pack(len(frame), size))
        out.write(frame)


def as_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """The memory of an array."""
    return array.reshape(-1).view(np.uint8).data  # the buffer protocol itself knows no complex numbers
