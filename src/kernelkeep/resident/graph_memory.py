"""Graphs that were loaded: their memory, and for how long it is needed."""

from __future__ import annotations

import itertools
import threading
from typing import Any, Protocol

import numpy as np

from ..devices.array import Array
from ..devices.resident_blocks import ResidentBlocks
from .future import TaskFuture
from .graph_layout import NUMBER_AT, RESULTS_AT, GraphLayout

_FEW = 16


class GraphMemory(Protocol):
    """Where a grid has a graph. `address` is what a record names it by."""

    address: int

    def write(self, layout: GraphLayout) -> None:
        """Have the graph as it is laid out now. It does not run."""

    def read_results(self) -> np.ndarray[Any, Any]:
        """The results of the nodes in their order in the chains, eight bytes each. It does not run."""


class DeviceGraphMemory:
    """A graph in device memory."""

    def __init__(self, blocks: ResidentBlocks, device: Any, layout: GraphLayout) -> None:
        self._image: Array = device.empty(layout.image.nbytes, "u1")
        self._results: Array = device.array(np.zeros(layout.nodes, "u8"))
        self.address = blocks.address_of(self._image)
        self._distance = (blocks.address_of(self._results) - self.address) % (1 << 64)
        self.write(layout)

    def write(self, layout: GraphLayout) -> None:
        layout.image[RESULTS_AT : RESULTS_AT + 8] = np.array([self._distance], "<u8").view("u1")
        self._image.copy_from(layout.image)

    def read_results(self) -> np.ndarray[Any, Any]:
        return self._results.numpy()


class LoadedGraph:
    """A graph on the device, and its latest run in each lane."""

    def __init__(self, number: int, name: str, layout: GraphLayout, labels: tuple[str, ...]) -> None:
        self.number, self.name, self.layout, self.labels = number, name, layout, labels
        self._runs: dict[int, TaskFuture] = {}
        self.memory: GraphMemory

    def ran(self, future: TaskFuture) -> None:
        """Note a run."""
        self._runs[id(future.lane)] = future  # a lane's tasks are done in order, so the latest one counts

    @property
    def latest(self) -> tuple[TaskFuture, ...]:
        """The latest run in each lane."""
        return tuple(self._runs.values())

    def is_idle(self) -> bool:
        """Whether no run of it is under way."""
        return all(future.done() for future in self.latest)

    def node_at(self, number: int) -> int | None:
        """The node that is the `number`-th of all nodes of all chains."""
        return next((node for node, one in enumerate(self.layout.numbers) if one == number), None)


class LoadedGraphs:
    """All graphs of a grid. Those that nobody holds any more are freed when no run of them is under way."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self._numbers = itertools.count(1)
        self._loaded: dict[int, LoadedGraph] = {}
        self._retired: list[LoadedGraph] = []
        self._sweep_at = _FEW  # so many retired graphs: looking at all of them before each load would be slow
        self._lock = threading.RLock()  # a graph may be collected, and retired, at any moment

    def load(self, name: str, layout: GraphLayout, labels: tuple[str, ...]) -> LoadedGraph:
        """Load a graph into the device's memory."""
        if len(self._retired) <= _FEW or len(self._retired) >= self._sweep_at:
            self.sweep()
        loaded = LoadedGraph(next(self._numbers), name, layout, labels)
        layout.image[NUMBER_AT : NUMBER_AT + 4] = np.array([loaded.number], "<u4").view("u1")
        loaded.memory = self._grid.load_graph(layout)
        with self._lock:
            self._loaded[loaded.number] = loaded
        return loaded

    def retire(self, loaded: LoadedGraph) -> None:
        """Nobody will run it again."""
        with self._lock:
            self._retired.append(loaded)

    def sweep(self) -> None:
        """Free the graphs that are not needed any more."""
        freed = []  # until the lock is free: freeing memory may take a while
        with self._lock:
            retired, self._retired = self._retired, []
            for one in retired:
                if one.is_idle():
                    freed.append(self._loaded.pop(one.number, None))
                else:
                    self._retired.append(one)
            self._sweep_at = 2 * len(self._retired)

    def find(self, number: int) -> LoadedGraph | None:
        """By its number."""
        return self._loaded.get(number)

    def at(self, address: int) -> LoadedGraph | None:
        """By its address."""
        return next((one for one in list(self._loaded.values()) if one.memory.address == address), None)

    def clear(self) -> None:
        """The grid has ended."""
        with self._lock:
            self._loaded.clear()
            self._retired.clear()
