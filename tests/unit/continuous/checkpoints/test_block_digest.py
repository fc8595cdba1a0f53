"""The digest of a block changes whenever the block does, and is the same in C, in NumPy and by the document."""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelkeep.continuous.checkpoints.block_digest import BLOCK_BYTES, digest_blocks, digest_in_numpy, key_of
from kernelkeep.continuous.checkpoints.blocks import BlockContent
from kernelkeep.continuous.checkpoints.header import CheckpointHeader

KEY = bytes(range(100, 116))


def digest_by_the_document(data: bytes, key: bytes) -> list[tuple[int, ...]]:
    """Uses nothing of kernelkeep and no NumPy: docs/checkpoint-format.md alone."""
    most, found = 0xFFFFFFFF, []
    factors, turns = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F), (7, 11, 19, 23)
    for at in range(0, len(data), 65536):
        words = struct.unpack("<16384I", data[at : at + 65536].ljust(65536, b"\0"))
        sums = [0, 0, 0, 0]
        for item in range(256):
            lanes = [
                part ^ (item * factor & most) for part, factor in zip(struct.unpack("<4I", key), factors, strict=True)
            ]
            for word in words[item::256]:
                mixed = word * 0xCC9E2D51 & most
                mixed ^= mixed >> 16
                for number in range(4):
                    lane = lanes[number] ^ mixed
                    lane = (lane << turns[number] | lane >> (32 - turns[number])) & most
                    lanes[number] = lane * factors[number] & most
            for number, lane in enumerate(lanes):
                lane = (lane ^ lane >> 16) * 0x85EBCA6B & most
                lane = (lane ^ lane >> 13) * 0xC2B2AE35 & most
                sums[number] = (sums[number] + (lane ^ lane >> 16)) & most
        found.append(tuple(sums))
    return found


def some_bytes(count: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, count, dtype="u1").tobytes()


@pytest.mark.parametrize("count", [0, 1, 3, 65535, 65536, 65537, 130_000])
def test_all_three_agree(count: int) -> None:
    data = some_bytes(count)
    found = digest_blocks(memoryview(data), KEY)
    in_numpy = np.empty_like(found)
    digest_in_numpy(memoryview(data), KEY, in_numpy)
    np.testing.assert_array_equal(found, in_numpy)
    if count < 70_000:
        assert [tuple(row) for row in found.tolist()] == digest_by_the_document(data, KEY)


def test_blocks_do_not_depend_on_each_other() -> None:
    data = some_bytes(5 * BLOCK_BYTES + 77)
    whole = digest_blocks(memoryview(data), KEY)
    for number in range(6):
        one = digest_blocks(memoryview(data)[number * BLOCK_BYTES : (number + 1) * BLOCK_BYTES], KEY)
        np.testing.assert_array_equal(whole[number : number + 1], one)


def test_each_key_has_its_own_digests() -> None:
    data = memoryview(some_bytes(BLOCK_BYTES))
    one, other = digest_blocks(data, key_of("00" * 15 + "01")), digest_blocks(data, key_of("00" * 16))
    assert (one != other).any()
    np.testing.assert_array_equal(other, digest_blocks(data, key_of("")))


def changes(block: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Blocks that differ from this one in ways that simple sums and chains of them miss."""
    dice = np.random.default_rng(9)
    made = {}
    for _ in range(400):
        place, bit = int(dice.integers(16384)), int(dice.integers(32))
        one = block.copy()
        one[place] ^= np.uint32(1 << bit)
        made[f"bit {bit} of word {place}"] = one
        for by in (1, 256, 512):  # a second flip in the next word of the same item, or of its neighbour
            two = one.copy()
            two[(place + by) % 16384] ^= np.uint32(1 << int(dice.integers(32)))
            made[f"two bits, {place} and {by} after it, {len(made)}"] = two
        swapped = block.copy()
        other = (place + int(dice.choice([1, 255, 256, 4096]))) % 16384
        swapped[[place, other]] = swapped[[other, place]]
        made[f"{place} and {other} swapped"] = swapped
    for name, rolled in (("by a word", 1), ("by an item's turn", 256)):
        made[f"rolled {name}"] = np.roll(block, rolled)
    signs = block.copy()
    signs ^= np.uint32(1 << 31)
    made["all signs"] = signs
    for first in (0, 256):
        half = block.copy()
        half[first::512] ^= np.uint32(1 << 31)
        made[f"every second sign from {first}"] = half
    return made


@pytest.mark.parametrize("kind", ["noise", "zeros", "ones", "counting"])
def test_every_change_changes_the_digest_and_most_of_its_bits(kind: str) -> None:
    block = {
        "noise": np.frombuffer(some_bytes(BLOCK_BYTES), "<u4"),
        "zeros": np.zeros(16384, "<u4"),
        "ones": np.full(16384, 1.0, "<f4").view("<u4"),
        "counting": np.arange(16384, dtype="<u4"),
    }[kind]
    made = {name: one for name, one in changes(block).items() if not np.array_equal(one, block)}
    digests = digest_blocks(np.concatenate([block, *made.values()]).view("u1").data, KEY)
    differing = np.unpackbits((digests[1:] ^ digests[0]).view("u1"), axis=1).sum(axis=1)
    # Of 128 bits half differ on average; 30 is six standard deviations away.
    assert differing.min() > 30, list(made)[int(differing.argmin())]
    assert 62 < differing.mean() < 66
    assert len(np.unique(digests, axis=0)) == len({one.tobytes() for one in (block, *made.values())})


def test_a_reader_written_from_the_document(tmp_path: Path) -> None:
    """To read it, nothing of kernelkeep is used, and no NumPy."""
    made = {
        "u": np.frombuffer(some_bytes(70_000), "<f2"),
        "empty": np.zeros((3, 0), "i8"),
        "v": np.arange(5, dtype="u1"),
        "w": np.frombuffer(some_bytes(65536, 2), "<c16"),
    }
    facts = CheckpointHeader(
        program="heat", program_digest="p", layout_digest="l", coupling="neighbours", items=8, iteration=1, generation=1,
        lineage="00112233445566778899aabbccddeeff",
    )  # fmt: skip
    with (tmp_path / "x.kkpt").open("wb") as file:
        BlockContent(facts, made).fill(file, 3)
    data = (tmp_path / "x.kkpt").read_bytes()
    magic, version, length, sequence, zero, crc = struct.unpack_from("<8sIIQII", data)
    assert (magic, version, sequence, zero) == (b"\x89KKPT\r\n\x1a", 3, 3, 0)
    assert zlib.crc32(data[:28]) == crc
    head = json.loads(data[32 : 32 + length])
    start = 32 + length + 32
    assert start % 4096 == 0 and data[start - 32 : start] == hashlib.sha256(data[: start - 32]).digest()
    sizes = {"<f2": 2, "<i8": 8, "|u1": 1, "<c16": 16}
    at, digests = start, []
    for info in head["arrays"]:
        nbytes = math.prod(info["shape"]) * sizes[info["dtype"]]
        raw, end = data[at : at + nbytes], at + -(-nbytes // 4096) * 4096
        assert raw == made[info["name"]].tobytes()
        assert data[at + nbytes : end] == bytes(end - at - nbytes)
        digests += digest_by_the_document(raw, bytes.fromhex(head["lineage"]))
        at = end
    table = b"".join(struct.pack("<4I", *digest) for digest in digests)
    ending = b"KKPT-END" + struct.pack("<Q", len(data))
    assert data[at:] == table + ending + hashlib.sha256(data[:start] + table + ending).digest()
