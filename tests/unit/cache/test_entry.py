"""An entry proves itself: whatever is changed in it, it is not accepted."""

from __future__ import annotations

import hashlib
import random
import struct
import sys
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from kernelkeep.cache.entry import Entry, decode, encode
from kernelkeep.storage.files import Damaged
from kernelkeep.testing.entries import sample_entry

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEADER = struct.Struct("<4sBBH32sIIII")
START = HEADER.size + 32


def digest_of(entry: Entry) -> str:
    return entry.facts.key.digest


def resealed(data: bytes, change: Callable[[list[int | bytes]], None], body: bytes | None = None) -> bytes:
    """`data` with header fields changed and the checksum made valid again: only what it says can give it away."""
    fields = list(HEADER.unpack_from(data))
    change(fields)
    header = HEADER.pack(*fields)
    body = data[START:] if body is None else body
    return header + hashlib.sha256(header + body).digest() + body


def put(index: int, value: int | bytes) -> Callable[[list[int | bytes]], None]:
    def change(fields: list[int | bytes]) -> None:
        fields[index] = value

    return change


SCHEMA, CODEC, ZERO, KEY, FACTS_SIZE, STORED_SIZE, SIZE, RESERVED = range(1, 9)


@pytest.mark.parametrize("size", [0, 1, 100, 5000, 1 << 20])
@pytest.mark.parametrize("compressible", [False, True])
def test_decode_returns_what_was_encoded(size: int, compressible: bool) -> None:
    entry = sample_entry(1, size=size, compressible=compressible)
    assert decode(encode(entry), digest_of(entry)) == entry


def test_decode_returns_names_of_every_kind() -> None:
    for name in ("ünïcode", "🚀🚀", "a/../b", "x" * 3000, 'quote"\\\n'):
        entry = sample_entry(2, name=name)
        assert decode(encode(entry), digest_of(entry)).facts.name == name


def test_a_compressible_payload_is_compressed() -> None:
    noise, text = sample_entry(3, size=80_000), sample_entry(3, size=80_000, compressible=True)
    assert encode(noise)[5] == 0 and len(encode(noise)) >= 80_000
    assert encode(text)[5] == 1 and len(encode(text)) < 1000


def test_decode_rejects_an_entry_truncated_at_any_length() -> None:
    entry = sample_entry(4, size=200)
    data = encode(entry)
    for length in range(len(data)):
        with pytest.raises(Damaged):
            decode(data[:length], digest_of(entry))


@pytest.mark.parametrize("compressible", [False, True])
def test_decode_rejects_every_flipped_bit(compressible: bool) -> None:
    entry = sample_entry(5, size=70_000 if compressible else 60, compressible=compressible)
    data = encode(entry)
    assert data[5] == compressible and len(data) < 1000
    for position in range(len(data)):
        for bit in range(8):
            changed = bytearray(data)
            changed[position] ^= 1 << bit
            with pytest.raises(Damaged):
                decode(bytes(changed), digest_of(entry))


def test_decode_rejects_changed_bytes_in_a_large_entry() -> None:
    rng = random.Random(11)
    entry = sample_entry(6, size=1 << 20, compressible=True)
    large = sample_entry(6, size=1 << 20)
    for one in (entry, large):
        data = encode(one)
        for _ in range(100):
            changed = bytearray(data)
            changed[rng.randrange(len(data))] ^= rng.randrange(1, 256)
            with pytest.raises(Damaged):
                decode(bytes(changed), digest_of(one))


def test_decode_rejects_trailing_bytes() -> None:
    entry = sample_entry(7)
    for tail in (b"\0", b"KKEN", encode(entry)):
        with pytest.raises(Damaged, match="bytes instead of"):
            decode(encode(entry) + tail, digest_of(entry))


@pytest.mark.parametrize("data", [b"", b"\0" * 500, b"\x7fELF" + b"\1" * 500, b"KKI1" + b"x" * 500, b"{}" * 300])
def test_decode_rejects_foreign_files(data: bytes) -> None:
    with pytest.raises(Damaged, match=r"not a kernelkeep entry|cut off"):
        decode(data, digest_of(sample_entry(8)))


def test_resealing_alone_changes_nothing() -> None:
    """Guards the tests below: what they refuse, they refuse for the field and not for the seal."""
    entry = sample_entry(9)
    data = encode(entry)
    assert resealed(data, lambda fields: None) == data


@pytest.mark.parametrize("schema", [0, 2, 255])
def test_decode_rejects_another_schema(schema: int) -> None:
    entry = sample_entry(9)
    with pytest.raises(Damaged, match=f"schema {schema}"):
        decode(resealed(encode(entry), put(SCHEMA, schema)), digest_of(entry))


@pytest.mark.parametrize(
    ("index", "value"), [(CODEC, 2), (CODEC, 255), (ZERO, 1), (RESERVED, 1), (SIZE, (1 << 30) + 1)]
)
def test_decode_rejects_a_nonsensical_header(index: int, value: int) -> None:
    entry = sample_entry(9)
    with pytest.raises(Damaged, match="makes no sense"):
        decode(resealed(encode(entry), put(index, value)), digest_of(entry))


def test_decode_rejects_the_entry_of_another_key() -> None:
    one, other = sample_entry(10), sample_entry(11)
    with pytest.raises(Damaged, match="another key"):
        decode(encode(one), digest_of(other))
    relabelled = resealed(encode(one), put(KEY, bytes.fromhex(digest_of(other))))
    with pytest.raises(Damaged, match="another program"):
        decode(relabelled, digest_of(other))


@pytest.mark.parametrize("compressible", [False, True])
@pytest.mark.parametrize("wrong", [-1, 1, -100, 1 << 20])
def test_decode_rejects_a_wrong_payload_length(compressible: bool, wrong: int) -> None:
    entry = sample_entry(12, size=70_000, compressible=compressible)
    assert encode(entry)[5] == compressible
    with pytest.raises(Damaged):
        decode(resealed(encode(entry), put(SIZE, 70_000 + wrong)), digest_of(entry))


def test_a_zstd_bomb_costs_no_memory() -> None:
    entry = sample_entry(13, size=100)
    facts = msgspec.json.encode(entry.facts)
    bomb = zstd.compress(b"\0" * (256 << 20), level=1)
    assert len(bomb) < 100_000

    def lie(fields: list[int | bytes]) -> None:
        fields[CODEC], fields[STORED_SIZE] = 1, len(bomb)

    data = resealed(encode(entry), lie, facts + bomb)
    tracemalloc.start()
    try:
        with pytest.raises(Damaged, match="length"):
            decode(data, digest_of(entry))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("tail", [b"\0", b"garbage", zstd.compress(b"")])
def test_decode_rejects_bytes_behind_the_compressed_payload(tail: bytes) -> None:
    entry = sample_entry(14, size=70_000, compressible=True)
    data = encode(entry)
    assert data[5] == 1
    longer = HEADER.unpack_from(data)[STORED_SIZE] + len(tail)
    with pytest.raises(Damaged):
        decode(resealed(data, put(STORED_SIZE, longer), data[START:] + tail), digest_of(entry))


@pytest.mark.parametrize(
    "facts", [b"", b"{}", b"[]", b"null", b"{", b'{"name": 3}', b"\xff\xfe", b"[" * 100_000, b'{"x":' * 100_000]
)
def test_decode_rejects_facts_that_are_not_facts(facts: bytes) -> None:
    entry = sample_entry(15, size=50)
    data = resealed(encode(entry), put(FACTS_SIZE, len(facts)), facts + entry.payload)
    with pytest.raises(Damaged):
        decode(data, digest_of(entry))


def test_facts_of_a_newer_version_are_read() -> None:
    entry = sample_entry(16, size=50)
    newer = msgspec.json.encode(msgspec.to_builtins(entry.facts) | {"measured_ms": {"h200": 1.5}})
    data = resealed(encode(entry), put(FACTS_SIZE, len(newer)), newer + entry.payload)
    assert decode(data, digest_of(entry)) == entry
