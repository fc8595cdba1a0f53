"""The digest of a block of 64 KiB: 16 bytes that change when the block does, the same on a device, in C and in NumPy.

It finds damage and changes; it proves nothing about who wrote a block. `docs/checkpoint-format.md` has it in words. It needs
32-bit integers only, so every backend computes it where the state is (`device_digest.py`), and no byte of an unchanged block
leaves the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from ..._digest import digest_blocks as _digest_in_c
except ImportError:  # a system for which it is not built
    _digest_in_c = None  # type: ignore[assignment]

BLOCK_BYTES = 1 << 16
DIGEST_BYTES = 16
ITEMS = 256  # of a block's words each takes every 256th
ROUNDS = BLOCK_BYTES // 4 // ITEMS
MIXER = 0xCC9E2D51
FACTORS = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F)
TURNS = (7, 11, 19, 23)
FINISH = ((16, 0x85EBCA6B), (13, 0xC2B2AE35))
LAST_SHIFT = 16
_BATCH = 16  # blocks that NumPy digests at a time: what it works on stays in the processor's cache

Digests = np.ndarray[Any, np.dtype[np.uint32]]  # a row of four for each block


def key_of(lineage: str) -> bytes:
    """The key of a run's digests: its lineage, or zeros where it has none."""
    return bytes.fromhex(lineage) if lineage else bytes(16)


def block_count(nbytes: int) -> int:
    """How many blocks so many bytes are; the last one may be shorter."""
    return -(-nbytes // BLOCK_BYTES)


def digest_blocks(data: memoryview, key: bytes) -> Digests:
    """The digests of the blocks of `data`. Other threads go on meanwhile."""
    digests = np.empty((block_count(len(data)), 4), "<u4")
    if not len(digests):
        return digests
    if _digest_in_c is None:
        digest_in_numpy(data, key, digests)
    else:
        _digest_in_c(data, key, digests.reshape(-1).view("u1"))
    return digests


def digest_in_numpy(data: memoryview, key: bytes, digests: Digests) -> None:
    """What `_digest.c` does."""
    raw = np.frombuffer(data, "u1")
    items = np.arange(ITEMS, dtype="u4")
    seeds = [
        part ^ (items * np.uint32(factor)) for part, factor in zip(np.frombuffer(key, "<u4"), FACTORS, strict=True)
    ]
    for first in range(0, len(digests), _BATCH):
        count = min(_BATCH, len(digests) - first)
        part = raw[first * BLOCK_BYTES : (first + count) * BLOCK_BYTES]
        if part.nbytes < count * BLOCK_BYTES:
            part = np.concatenate([part, np.zeros(count * BLOCK_BYTES - part.nbytes, "u1")])
        words = part.view("<u4").reshape(count, ROUNDS, ITEMS)
        lanes = [np.tile(seed, (count, 1)) for seed in seeds]
        for turn in range(ROUNDS):
            mixed = words[:, turn] * np.uint32(MIXER)
            mixed ^= mixed >> np.uint32(16)
            for number, (lane, by, factor) in enumerate(zip(lanes, TURNS, FACTORS, strict=True)):
                lane ^= mixed
                lanes[number] = (lane << np.uint32(by) | lane >> np.uint32(32 - by)) * np.uint32(factor)
        for number, lane in enumerate(lanes):
            for shift, factor in FINISH:
                lane ^= lane >> np.uint32(shift)
                lane *= np.uint32(factor)
            lane ^= lane >> np.uint32(LAST_SHIFT)
            digests[first : first + count, number] = lane.sum(axis=1, dtype="u4")
