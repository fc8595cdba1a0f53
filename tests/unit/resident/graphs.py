"""Graphs without a device: made up by hypothesis, and run by a few lines of Python that read what was laid out."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
from hypothesis import strategies as st

from kernelkeep.programs.languages import find_language
from kernelkeep.programs.task_program import TaskArray
from kernelkeep.resident.graph import TaskGraph
from kernelkeep.resident.graph_check import GraphLimits
from kernelkeep.resident.graph_layout import CHAIN_BYTES, GraphLayout
from kernelkeep.resident.graph_memory import LoadedGraphs
from kernelkeep.resident.task import Task, prepare

SLOT = 32
LANGUAGE = find_language("cuda")
ARRAYS = [TaskArray("v", "u4")]
TASKS = {
    name: prepare(name, body, number, ARRAYS, 64, LANGUAGE)
    for number, (name, body) in enumerate(
        {
            "mix": "(int to, uint k) { v[to] += k; }",
            "wide": Task("v[0] = k;", args={"k": "u4"}, whole_grid=True),
            "get": Task("kk_result(v[i]);", args={"i": "i4"}, result="u4"),
        }.items()
    )
}


class HostMemory:
    """A graph in the host's memory."""

    def __init__(self, address: int, layout: GraphLayout) -> None:
        self.address = address
        self.results = np.zeros(layout.nodes, "u8")
        self.writes = 0
        self.write(layout)

    def write(self, layout: GraphLayout) -> None:
        self.image = layout.image.copy()
        self.writes += 1

    def read_results(self) -> np.ndarray[Any, Any]:
        return self.results


class HostGrid:
    """A grid that has graphs and runs none."""

    def __init__(self) -> None:
        self.memories: list[HostMemory] = []

    def load_graph(self, layout: GraphLayout) -> HostMemory:
        self.memories.append(HostMemory(4096 * (1 + len(self.memories)), layout))
        return self.memories[-1]


class Ran:
    """The future of a graph that has run, or not yet."""

    def __init__(self, lane: object, over: bool = True) -> None:
        self.lane, self.over = lane, over

    def done(self) -> bool:
        return self.over

    def result(self, timeout: float | None = None) -> None:
        self.over = True


class Host:
    """What a graph needs of a resident."""

    def __init__(self) -> None:
        self.grid = HostGrid()
        self.loaded = LoadedGraphs(self.grid)
        self.tasks = dict(TASKS)
        self.ran: list[int] = []
        self.over = True

    def graph(self, limits: GraphLimits | None = None) -> TaskGraph:
        return TaskGraph(self.tasks.__getitem__, self._submit, self.loaded, SLOT, limits=limits)

    def _submit(self, address: int) -> Any:
        self.ran.append(address)
        return Ran(self, self.over)


def run_image(given: np.ndarray[Any, Any], slot: int, chance: random.Random) -> list[tuple[int, bytes]]:
    """Run a graph from its bytes, in an order that chance chooses; (number, record) of the nodes as they ran."""
    image = given.tobytes()
    successors_at, queue_at, _, chains, roots, ends, _, _ = struct.unpack_from("<QQQIIIII", image)
    ready, arrived, over, ran = [], dict[int, int](), 0, []
    most_queued = 0

    def successor(number: int) -> tuple[int, int]:
        chain, wanted = struct.unpack_from("<II", image, successors_at + 8 * number)
        return chain, wanted

    for number in range(roots):
        chain, wanted = successor(number)
        assert wanted == 1
        ready.append(chain)
    while ready:
        at = 16 * ready.pop(chance.randrange(len(ready)))
        most_queued += 1
        length, node, first, count, zero = struct.unpack_from("<IIIII", image, at)
        assert length > 0 and zero == 0
        for i in range(length):
            start = at + CHAIN_BYTES + i * slot
            ran.append((node + i, image[start : start + slot]))
        over += not count
        for number in range(first, first + count):
            chain, wanted = successor(number)
            arrived[chain] = arrived.get(chain, 0) + 1
            if arrived[chain] == wanted:
                ready.append(chain)
    assert over == ends and most_queued == chains
    assert queue_at + 4 * chains <= len(image)
    return ran


def acyclic(chance: random.Random, most: int = 12) -> tuple[int, list[tuple[int, int]]]:
    """(number of nodes, edges) without circles; nodes are numbered in any order. Some edges are given twice."""
    nodes = chance.randint(1, most)
    names = chance.sample(range(nodes), nodes)
    count = chance.randint(0, 2 * nodes) if nodes > 1 else 0
    pairs = (sorted(chance.sample(range(nodes), 2)) for _ in range(count))
    return nodes, [(names[a], names[b]) for a, b in pairs]


def chances() -> st.SearchStrategy[random.Random]:
    """Where graphs come from. Drawing every number from hypothesis would take minutes for 10,000 graphs."""
    return st.integers(0, (1 << 64) - 1).map(random.Random)
