"""An entry: one compiled program and its facts in one run of bytes, with a checksum. The same in every tier.

    offset  size
    0       4     magic "KKEN"
    4       1     schema, 1
    5       1     codec: 0 as it is, 1 zstd
    6       2     zero
    8       32    the key's digest
    40      4     length of the facts          little-endian, as all numbers here
    44      4     length of the stored payload
    48      4     length of the payload once decompressed
    52      4     zero
    56      32    SHA-256 of bytes 0 to 56, the facts and the stored payload
    88            the facts, JSON; then the stored payload

Nothing in a cache is trusted: every byte takes part in the check, and bytes that fail it are `Damaged`.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from functools import cache
from typing import Any, TypeVar

import msgspec

from ..storage.files import Damaged
from .key import SCHEMA, Key

_HEADER = struct.Struct("<4sBBH32sIIII")
_FACTS_START = _HEADER.size + 32  # after the checksum
_MAGIC = b"KKEN"
LARGEST_PAYLOAD = 1 << 30
# Programs are small, written once and read often; higher levels of zstd make them hardly smaller.
_LEVEL = 6
# Compress only if it saves more than this: decompressing takes a fifth of a hit, and the first hit of a process that needs it
# imports the codec, which takes as long as loading two programs with PoCL.
_WORTH_BYTES = 1 << 16


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What is known of a program beside its bytes; the readable `.meta` file is a copy."""

    name: str
    language: str
    device: str  # the fingerprint's folder
    key: Key
    created: float  # seconds since 1970
    compile_seconds: float
    version: str  # of kernelkeep
    kernels: tuple[str, ...] = ()
    payload_bytes: int = 0
    ripened: int = 0  # how often it was saved again after use
    compiler: str = ""  # of a program compiled ahead; otherwise the device's fingerprint names it


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A program's bytes, as `device.load` takes them, and the facts."""

    facts: Facts
    payload: bytes


@cache
def _zstd() -> Any:
    """The codec, which most hits do without: programs are small."""
    if sys.version_info >= (3, 14):  # in the standard library from there on
        from compression import zstd
    else:
        from backports import zstd
    return zstd


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Facts)


class _Named(msgspec.Struct):
    name: str


_name_decoder = msgspec.json.Decoder(_Named)


class _BriefKey(msgspec.Struct, gc=False):
    digest: str


class _BriefFacts(msgspec.Struct, gc=False):
    key: _BriefKey
    compile_seconds: float


_brief_decoder = msgspec.json.Decoder(_BriefFacts)
_F = TypeVar("_F", Facts, _BriefFacts)


def encode(entry: Entry) -> bytes:
    """The bytes of an entry."""
    packed = _zstd().compress(entry.payload, level=_LEVEL)
    codec, stored = (1, packed) if len(entry.payload) - len(packed) > _WORTH_BYTES else (0, entry.payload)
    facts = _encoder.encode(entry.facts)
    digest = bytes.fromhex(entry.facts.key.digest)
    header = _HEADER.pack(_MAGIC, SCHEMA, codec, 0, digest, len(facts), len(stored), len(entry.payload), 0)
    check = hashlib.sha256(header)
    check.update(facts)
    check.update(stored)
    return b"".join((header, check.digest(), facts, stored))


def decode(data: bytes, digest: str) -> Entry:
    """The entry of `digest`, with every byte verified; `Damaged` says what is wrong."""
    facts, payload = _decoded(data, digest, _decoder)
    return Entry(facts, payload)


def decode_payload(data: bytes, digest: str) -> tuple[bytes, float]:
    """Only its payload, verified in the same way, and the seconds that its compile took: most facts are for people."""
    facts, payload = _decoded(data, digest, _brief_decoder)
    return payload, facts.compile_seconds


def _decoded(data: bytes, digest: str, decoder: msgspec.json.Decoder[_F]) -> tuple[_F, bytes]:
    payload_start, codec, size = _verify(data, digest)
    try:
        payload = _decompress(memoryview(data)[payload_start:], size) if codec == 1 else data[payload_start:]
        facts = decoder.decode(data[_FACTS_START:payload_start])
    except (msgspec.MsgspecError, RecursionError, MemoryError) as error:
        raise Damaged(f"what it holds cannot be read: {error}") from None
    if len(payload) != size:
        raise Damaged("its payload has the wrong length")
    if facts.key.digest != digest:
        raise Damaged("its facts are those of another program")
    return facts, payload


def read_facts(data: bytes) -> tuple[str, bytes]:
    """The program's name and the facts as JSON, from the bytes of an entry that was verified before."""
    try:
        facts = data[_FACTS_START : _FACTS_START + _HEADER.unpack_from(data)[5]]
        return _name_decoder.decode(facts).name, facts
    except (struct.error, msgspec.MsgspecError) as error:
        raise Damaged(f"its facts cannot be read: {error}") from None


def _decompress(stored: Any, size: int) -> bytes:
    """Decompress at most one byte more than the header promises: a few bytes of zstd can hold gigabytes."""
    frame = _zstd().ZstdDecompressor()
    try:
        payload: bytes = frame.decompress(stored, size + 1)
    except _zstd().ZstdError as error:
        raise Damaged(f"what it holds cannot be read: {error}") from None
    if len(payload) == size and not (frame.eof and not frame.unused_data):
        raise Damaged("its payload does not end where it should")
    return payload


def _verify(data: bytes, digest: str) -> tuple[int, int, int]:
    """Where the payload starts, its codec and its size once decompressed."""
    if len(data) < _FACTS_START:
        raise Damaged(f"it is cut off after {len(data)} bytes")
    magic, schema, codec, zero, key, facts_size, stored_size, size, reserved = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise Damaged("it is not a kernelkeep entry")
    if schema != SCHEMA:
        raise Damaged(f"it has schema {schema}, and this version reads {SCHEMA}")
    if len(data) != _FACTS_START + facts_size + stored_size:
        raise Damaged(f"it has {len(data)} bytes instead of {_FACTS_START + facts_size + stored_size}")
    check = hashlib.sha256(data[: _HEADER.size])  # small slices of bytes are faster than those of a memoryview
    check.update(memoryview(data)[_FACTS_START:])
    if check.digest() != data[_HEADER.size : _FACTS_START]:
        raise Damaged("its checksum is wrong")
    if key.hex() != digest:
        raise Damaged("it belongs to another key")
    if codec not in (0, 1) or zero or reserved or size > LARGEST_PAYLOAD:
        raise Damaged("its header makes no sense")
    return _FACTS_START + facts_size, codec, size
