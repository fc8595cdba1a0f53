"""A graph as it lies in device memory. `cuda_resident.cu` has the same as `kk_Graph` and `kk_Chain`.

    0        where successors, queue and results are, from here in bytes (u64 each); u32 chains, roots, ends, helpers, number
    128      lock, at 256 tickets, at 384 ended: 0 between two runs, each on a line of its own
    512      the chains: u32 length, number of the first node, first successor, successors, arrived (0), and 12 unused bytes;
             then the records of its nodes, as they are in a ring
    …        the successors, u64 each: the distance of a chain from 0 in 16 bytes | the number of chains it waits for << 32;
             first the roots, which wait for nothing, then those of each chain
    …        the queue, u32 for each chain, 0; and as much as a block may read beyond the last chain

A chain is nodes that follow one another: each but the last has one successor, which waits for nothing else. One block runs it
without telling others. So a graph of one chain runs as fast as a block can read it. Nodes are numbered chain by chain.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

HEAD_BYTES = 512
CHAIN_BYTES = 32
RESULTS_AT = 16  # where the head tells the distance of the results
NUMBER_AT = 40
_PIECE = 16
_LINE = 128
_READ_BEYOND = 2048  # a block fetches a chain's first records before it knows how many there are
_HEAD = struct.Struct("<QQQIIIII")
_CHAIN = struct.Struct("<IIIII12x")


class GraphLayout(msgspec.Struct, frozen=True):
    """What is loaded, and where each node is."""

    image: np.ndarray[Any, Any]  # bytes
    slot: int
    numbers: tuple[int, ...]  # of each node: its place among all nodes of all chains
    places: tuple[int, ...]  # of each node: where its record begins
    chains: tuple[tuple[int, ...], ...]  # the nodes of each
    successors: tuple[tuple[int, ...], ...]  # of each node
    waits: tuple[int, ...]  # of each node: how many it waits for

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.numbers)

    def record(self, node: int) -> bytes:
        """The record of a node, as it would be in a ring."""
        at = self.places[node]
        return self.image[at : at + self.slot].tobytes()

    def set_record(self, node: int, record: bytes) -> None:
        """Other arguments for a node, for the next time the graph is written to the device."""
        at = self.places[node]
        self.image[at : at + self.slot] = np.frombuffer(record, "u1")


def lay_out(records: Sequence[bytes], edges: Sequence[tuple[int, int]], order: Sequence[int], slot: int) -> GraphLayout:
    """Lay out nodes with these records of `slot` bytes; `order` has each after those it waits for."""
    successors, waits = _neighbours(len(records), edges)
    chains = _chains(successors, waits, order)
    heads = {chain[0]: number for number, chain in enumerate(chains)}
    numbers, places, starts = [0] * len(records), [0] * len(records), []
    at, count = HEAD_BYTES, 0
    for chain in chains:
        starts.append(at)
        for i, node in enumerate(chain):
            numbers[node] = count + i
            places[node] = at + CHAIN_BYTES + i * slot
        at += CHAIN_BYTES + len(chain) * slot
        count += len(chain)
    roots = [number for number, chain in enumerate(chains) if not waits[chain[0]]]
    entries = [starts[number] // _PIECE | 1 << 32 for number in roots]
    successors_at = _aligned(at)
    after: list[tuple[int, int]] = []  # of each chain: the first of its successors, and how many
    for chain in chains:
        targets = successors[chain[-1]]
        after.append((len(entries), len(targets)))
        entries += [starts[heads[one]] // _PIECE | waits[one] << 32 for one in targets]
    queue_at = _aligned(successors_at + 8 * len(entries))
    made = bytearray(_aligned(max(queue_at + 4 * len(chains), at + _READ_BEYOND)))
    ends = sum(not count for _, count in after)
    helpers = len(roots) - 1 + sum(count - 1 for _, count in after if count)
    _HEAD.pack_into(made, 0, successors_at, queue_at, 0, len(chains), len(roots), ends, min(helpers, 0xFFFFFFFF), 0)
    for chain, start, (first, count) in zip(chains, starts, after, strict=True):
        _CHAIN.pack_into(made, start, len(chain), numbers[chain[0]], first, count, 0)
    for node, record in enumerate(records):
        made[places[node] : places[node] + slot] = record
    made[successors_at : successors_at + 8 * len(entries)] = np.array(entries, "<u8").tobytes()
    return GraphLayout(
        np.frombuffer(made, "u1"),
        slot,
        tuple(numbers),
        tuple(places),
        tuple(tuple(chain) for chain in chains),
        tuple(tuple(one) for one in successors),
        tuple(waits),
    )


def _neighbours(nodes: int, edges: Sequence[tuple[int, int]]) -> tuple[list[list[int]], list[int]]:
    """Of each node its successors, and how many it waits for. An edge that is given twice counts once."""
    successors: list[list[int]] = [[] for _ in range(nodes)]
    waits = [0] * nodes
    for before, after in dict.fromkeys(edges):
        successors[before].append(after)
        waits[after] += 1
    return successors, waits


def _chains(successors: list[list[int]], waits: list[int], order: Sequence[int]) -> list[list[int]]:
    """The nodes in chains that are as long as can be; a chain comes after those it waits for."""
    chains = []
    seen = bytearray(len(waits))
    for node in order:
        if seen[node]:
            continue
        chain = [node]
        while len(after := successors[chain[-1]]) == 1 and waits[after[0]] == 1:
            chain.append(after[0])
        for one in chain:
            seen[one] = 1
        chains.append(chain)
    return chains


def _aligned(at: int) -> int:
    return -(-at // _LINE) * _LINE
