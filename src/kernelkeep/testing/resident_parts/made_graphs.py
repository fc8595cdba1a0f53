"""Graphs made at random whose result tells whether every node ran once, and after all nodes it waits for."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from ...resident.graph import TaskGraph
from ...resident.resident import Resident
from ...resident.task import Task

__all__ = ["FOLD_TASKS", "MadeGraph", "MadeGraphs", "make_graph"]

_MASK = 0xFFFFFFFF
# A node mixes the values of those it waits for into its own, which the next run begins with. So a node that runs too early, twice
# or not at all makes other values, there and in all that come after it. Blocks that ran it are counted.
_FOLD = """
    if (kk_local_id(0) == 0) kk_atomic_add(ran[to], 1u);
    if (kk_global_id(0) == 0) {
        uint u = v[to] * 2654435761u + k;
        for (int i = 0; i < count; i++) u = (u ^ v[waits[first + i]]) * 16777619u + 1u;
        v[to] = u;
    }
"""
_ARGS = {"to": "i4", "first": "i4", "count": "i4", "k": "u4"}
FOLD_TASKS: dict[str, Any] = {
    "fold": Task(_FOLD, args=_ARGS),
    "fold_all": Task(_FOLD, args=_ARGS, whole_grid=True),
    "value": Task("if (kk_local_id(0) == 0) kk_result(v[at]);", args={"at": "i4"}, result="u4"),
    "tick": "(int at) { if (kk_local_id(0) == 0) kk_atomic_add(ticks[at], 1u); }",
    "tick_all": Task("if (kk_local_id(0) == 0) kk_atomic_add(ticks[at], 1u);", args={"at": "i4"}, whole_grid=True),
}


class MadeGraph:
    """A graph: of each node whom it waits for, by number, and whether all blocks run it. Nodes are in an order to run in."""

    def __init__(self, waits: list[list[int]], wide: list[bool]) -> None:
        self.waits, self.wide = waits, wide
        self.cell = self.first = 0  # of its first node, in the arrays of all graphs
        self.runs = 0

    def build(self, resident: Resident, chance: random.Random) -> TaskGraph:
        """The graph, with its nodes in any order, and edges by names, nodes and later ones."""
        graph = resident.graph()
        order = chance.sample(range(len(self.waits)), len(self.waits))
        firsts = np.cumsum([self.first, *(len(one) for one in self.waits)]).tolist()
        made: dict[int, Any] = {}
        for node in order:
            args = (self.cell + node, firsts[node], len(self.waits[node]), node)
            before = [made.get(one, str(one)) for one in self.waits[node]]
            late = [before.pop()] if before and chance.random() < 0.2 else []
            made[node] = graph.task("fold_all" if self.wide[node] else "fold", *args, after=before, name=str(node))
            for one in late:
                graph.edge(one, made[node])
        return graph

    def expect(self, values: list[int]) -> None:
        """Change the values as one run does."""
        for node, waits in enumerate(self.waits):
            value = values[self.cell + node] * 2654435761 + node
            for one in waits:
                value = ((value & _MASK) ^ values[self.cell + one]) * 16777619 + 1
            values[self.cell + node] = value & _MASK


class MadeGraphs:
    """Several graphs, with the arrays that their tasks use."""

    def __init__(self, graphs: list[MadeGraph], chance: random.Random) -> None:
        self.graphs = graphs
        cell = first = 0
        waits: list[int] = []
        for graph in graphs:
            graph.cell, graph.first = cell, first
            for one in graph.waits:
                waits += [cell + number for number in one]
            cell += len(graph.waits)
            first = len(waits)
        self._values = [chance.getrandbits(32) for _ in range(cell)]
        self.arrays = {
            "v": np.array(self._values, "u4"),
            "waits": np.array(waits or [0], "i4"),
            "ran": np.zeros(cell, "u4"),
            "ticks": np.zeros(64, "u4"),
        }

    def check(self, v: np.ndarray[Any, Any], ran: np.ndarray[Any, Any], blocks: int) -> None:
        """Compare with what the runs of the graphs must have made."""
        times = []
        for graph in self.graphs:
            for _ in range(graph.runs):
                graph.expect(self._values)
            times += [graph.runs * (blocks if wide else 1) for wide in graph.wide]
            graph.runs = 0
        assert ran.tolist() == times
        assert v.tolist() == self._values


def make_graph(chance: random.Random, nodes: int, wide: float = 0.05) -> MadeGraph:
    """A graph of a kind that chance chooses; `wide` is how many of its nodes all blocks run."""
    kind = chance.choice(["any", "any", "chains", "fan", "layers", "ladder", "tree", "lonely"])
    waits: list[list[int]] = []
    lanes, layer = chance.randint(1, 5), chance.randint(1, 8)
    for node in range(nodes):
        if kind == "chains":
            one = [node - lanes] if node >= lanes else []
        elif kind == "fan":
            one = [] if node == 0 else list(range(1, node)) if node == nodes - 1 and node > 1 else [0]
        elif kind == "layers":
            start = node // layer * layer
            one = list(range(start - layer, start)) if start else []
        elif kind == "ladder":
            one = [before for before in (node - 1 - node % 2, node - 2 - node % 2) if before >= 0]
        elif kind == "tree":
            one = [(node - 1) // 2] if node else []
        elif kind == "lonely":
            one = []
        else:
            most = min(node, chance.choice([1, 1, 2, 5]))
            one = sorted(chance.sample(range(max(0, node - 10), node), min(most, node, 10)))
        waits.append(one)
    return MadeGraph(waits, [chance.random() < wide for _ in range(nodes)])
