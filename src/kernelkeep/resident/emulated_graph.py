"""A graph as emulated blocks take it: its nodes, and their results."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import msgspec
import numpy as np

from .graph_layout import NUMBER_AT, GraphLayout

_addresses = itertools.count(16, 16)


class EmulatedNode(msgspec.Struct, frozen=True):
    """A node of a graph: the record of its task, how many predecessors it has, and its successors."""

    record: bytes
    wanted: int
    successors: tuple[int, ...]


class EmulatedGraph:
    """See `GraphMemory`. The nodes are in their order in the chains."""

    def __init__(self, layout: GraphLayout) -> None:
        self.address = next(_addresses)
        self._results = np.zeros(layout.nodes, "u8")
        self.write(layout)

    def write(self, layout: GraphLayout) -> None:
        """Have the graph as it is laid out now."""
        self.number = int(layout.image[NUMBER_AT : NUMBER_AT + 4].view("<u4")[0])
        self.nodes = tuple(
            EmulatedNode(
                layout.record(node), layout.waits[node], tuple(layout.numbers[one] for one in layout.successors[node])
            )
            for chain in layout.chains
            for node in chain
        )

    def set_result(self, number: int, code: str, value: Any) -> None:
        """Keep what a node gave back."""
        self._results[number] = int.from_bytes(struct.pack("<" + code, value), "little")

    def read_results(self) -> np.ndarray[Any, Any]:
        """The results of the nodes, eight bytes each."""
        return self._results
