"""Graphs as they are laid out for the device."""

from __future__ import annotations

import random
import struct

from hypothesis import given, settings

from kernelkeep.resident.graph_check import check_order
from kernelkeep.resident.graph_layout import HEAD_BYTES, GraphLayout, lay_out

from .graphs import SLOT, acyclic, chances, run_image


def laid_out(nodes: int, edges: list[tuple[int, int]]) -> GraphLayout:
    records = [struct.pack(f"<IIQ{SLOT - 16}x", 7, 0, node) for node in range(nodes)]
    return lay_out(records, edges, check_order([str(node) for node in range(nodes)], edges), SLOT)


def helpers(layout: GraphLayout) -> int:
    return int(struct.unpack_from("<I", layout.image.tobytes(), 36)[0])


@settings(max_examples=50, deadline=None)
@given(chances())
def test_every_node_runs_once_and_after_those_it_waits_for(chance: random.Random) -> None:
    for _ in range(10):
        nodes, edges = acyclic(chance)
        layout = laid_out(nodes, edges)
        ran = run_image(layout.image, SLOT, chance)
        order = [struct.unpack_from("<Q", record, 8)[0] for _, record in ran]
        assert sorted(order) == list(range(nodes))
        assert all(order.index(before) < order.index(after) for before, after in edges)
        assert [layout.numbers[node] for node in order] == [number for number, _ in ran]
        assert all(layout.record(node) == record for node, (_, record) in zip(order, ran, strict=True))


def test_a_chain_is_one_piece_that_one_block_runs_alone() -> None:
    layout = laid_out(100, [(node, node + 1) for node in range(99)])
    assert layout.chains == (tuple(range(100)),)
    assert helpers(layout) == 0
    assert layout.places[0] == HEAD_BYTES + 32 and layout.places[99] == layout.places[0] + 99 * SLOT


def test_a_fan_wants_as_many_blocks_as_it_is_wide() -> None:
    fan = [(0, node) for node in range(1, 51)] + [(node, 51) for node in range(1, 51)]
    layout = laid_out(52, fan)
    assert len(layout.chains) == 52
    assert helpers(layout) == 49


def test_an_edge_that_is_given_twice_counts_once() -> None:
    assert laid_out(2, [(0, 1), (0, 1)]).chains == ((0, 1),)


def test_other_arguments_change_the_record_only() -> None:
    layout = laid_out(3, [(0, 1), (0, 2)])
    before = layout.image.copy()
    layout.set_record(1, bytes(range(SLOT)))
    assert layout.record(1) == bytes(range(SLOT))
    assert (before != layout.image).sum() <= SLOT
