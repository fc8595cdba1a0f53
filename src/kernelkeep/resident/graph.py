"""Graphs of tasks: built once, loaded into the device's memory, and run with one doorbell as often as wanted.

    graph = resident.graph()
    a = graph.task("axpy", 2.0, n)
    b = graph.task("scale", 0.5, after=a)
    graph.task("sum", after=[a, b], name="total")
    graph.run().result()

A node runs when all nodes that it comes `after` have run, on any block that is free, or on all of them (`whole_grid=True`); it
sees what they wrote. Nodes can be named, and names may be used before they exist; so can edges be added later, by
`graph.edge(a, b)` or `a.before(b)`. The first `run`, or `load`, refuses a graph that could never end, with `GraphError`.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..errors import ArgumentError, GraphError
from .arguments import pack_record
from .future import TaskFuture
from .graph_check import Edge, GraphLimits, check_order, check_size
from .graph_layout import lay_out
from .graph_memory import LoadedGraph, LoadedGraphs
from .task import PreparedTask

_count = itertools.count(1)


class TaskNode:
    """A task in a graph. Made by `TaskGraph.task`."""

    __slots__ = ("args", "graph", "name", "number", "task", "whole_grid")

    def __init__(
        self, graph: TaskGraph, number: int, task: str, args: tuple[Any, ...], name: str | None, whole_grid: bool | None
    ) -> None:
        self.graph, self.number, self.task, self.args, self.name = graph, number, task, args, name
        self.whole_grid = whole_grid

    @property
    def label(self) -> str:
        """Its name, or its task and number."""
        return self.name or f"{self.task}[{self.number}]"

    def before(self, *others: TaskNode | str) -> None:
        """Have other nodes wait for this one."""
        for one in others:
            self.graph.edge(self, one)

    def update(self, *args: Any) -> None:
        """Other arguments, from the next run on. That run waits for those under way before it begins."""
        self.graph.set_arguments(self, args)

    def __repr__(self) -> str:
        return f"<TaskNode {self.label}>"


Place = TaskNode | str


class TaskGraph:
    """Tasks with dependencies. Made by `Resident.graph`."""

    def __init__(
        self,
        find_task: Callable[[str], PreparedTask],
        submit: Callable[[int], TaskFuture],
        loaded: LoadedGraphs,
        slot: int,
        *,
        name: str | None = None,
        limits: GraphLimits | None = None,
    ) -> None:
        if limits is not None and not isinstance(limits, GraphLimits):
            raise ArgumentError(f"limits must be GraphLimits, got {limits!r}")
        self.name = name or f"graph {next(_count)}"
        self.limits = limits or GraphLimits()
        self._find_task, self._submit, self._graphs, self._slot = find_task, submit, loaded, slot
        self._nodes: list[TaskNode] = []
        self._names: dict[str, TaskNode] = {}
        self._edges: list[tuple[Place, Place]] = []
        self._lock = threading.RLock()
        self._loaded: LoadedGraph | None = None
        self._retire: weakref.finalize[Any, Any] | None = None
        self._tasks: dict[str, PreparedTask] = {}  # as they were when the nodes were laid out
        self._changed: set[int] = set()  # nodes with other arguments than were loaded

    # --- building

    def task(
        self,
        task: str,
        *args: Any,
        after: Place | Iterable[Place] = (),
        name: str | None = None,
        whole_grid: bool | None = None,
    ) -> TaskNode:
        """Add a task that runs when those it comes `after` have run: nodes, or names of nodes.

        `whole_grid` has all blocks run it, or one; by default as the task says.
        """
        if whole_grid is not None and not isinstance(whole_grid, bool):
            raise ArgumentError(f"whole_grid must be True, False or None, got {whole_grid!r}")
        prepared = self._find_task(task)
        pack_record(prepared, args, whole_grid, self._slot)
        if not isinstance(after, TaskNode | str | Iterable):
            raise ArgumentError(f"after must be nodes of this graph, or their names, got {after!r}")
        places = [after] if isinstance(after, TaskNode | str) else list(after)
        with self._lock:
            if name is not None and (not isinstance(name, str) or not name or name in self._names):
                raise ArgumentError(f"name must be one that no other node of the graph has, got {name!r}")
            node = TaskNode(self, len(self._nodes), task, args, name, whole_grid)
            edges = [(self._place(one, node), node) for one in places]
            self._nodes.append(node)
            if name is not None:
                self._names[name] = node
            self._edges += edges
            self._unload()
        return node

    def edge(self, before: Place, after: Place) -> None:
        """Have `after` wait for `before`: nodes, or names of nodes, which may come later."""
        with self._lock:
            self._edges.append((self._place(before, after), self._place(after, before)))
            self._unload()

    def _place(self, place: Place, other: Place) -> Place:
        if not isinstance(place, TaskNode | str):
            raise ArgumentError(f"after must be nodes of this graph, or their names, got {place!r}")
        if isinstance(place, TaskNode) and place.graph is not self:
            raise GraphError(
                f"{place.label} is a node of {place.graph.name}, and {_label(other)} of {self.name}: a graph waits for its "
                "own nodes only",
                edge=(place.label, _label(other)),
            )
        return place

    def set_arguments(self, node: TaskNode, args: tuple[Any, ...]) -> None:
        """Other arguments for a node, from the next run on."""
        if not isinstance(node, TaskNode) or node.graph is not self or not isinstance(args, tuple):
            raise ArgumentError(f"a node of this graph and a tuple of arguments are needed, got {node!r} and {args!r}")
        prepared = self._find_task(node.task)
        pack_record(prepared, args, node.whole_grid, self._slot)
        with self._lock:
            node.args = args
            self._changed.add(node.number)

    @property
    def nodes(self) -> tuple[TaskNode, ...]:
        """The nodes, in the order they were added."""
        return tuple(self._nodes)

    # --- checking and loading

    def check(self) -> None:
        """Raise `GraphError` if the graph could not run, with the edge that is wrong."""
        with self._lock:
            self._ordered()

    def _ordered(self) -> tuple[list[Edge], list[int]]:
        edges: list[Edge] = []
        for before, after in self._edges:
            first, second = self._resolve(before), self._resolve(after)
            edge = (_label(before), _label(after))
            if first is None:
                raise GraphError(
                    f"{edge[1]} waits for {edge[0]}, which nothing signals: there is no such node", edge=edge
                )
            if second is None:
                raise GraphError(f"the edge {edge[0]} → {edge[1]} leads nowhere: there is no node {edge[1]}", edge=edge)
            edges.append((first.number, second.number))
        labels = [node.label for node in self._nodes]
        wide = [self._is_wide(node) for node in self._nodes]
        check_size(labels, wide, edges, self.limits)
        return edges, check_order(labels, edges)

    def _resolve(self, place: Place) -> TaskNode | None:
        return place if isinstance(place, TaskNode) else self._names.get(place)

    def _is_wide(self, node: TaskNode) -> bool:
        return self._find_task(node.task).whole_grid if node.whole_grid is None else node.whole_grid

    def load(self) -> None:
        """Check the graph and bring it to the device, so that the first run need not. Nothing is done where it is there."""
        with self._lock:
            if self._loaded is not None and any(
                self._find_task(name).number != one.number for name, one in self._tasks.items()
            ):
                self._unload()  # a task was replaced: it may have other arguments
            if self._loaded is None:
                edges, order = self._ordered()
                self._tasks = {node.task: self._find_task(node.task) for node in self._nodes}
                records = [self._record(node) for node in self._nodes]
                layout = lay_out(records, edges, order, self._slot)
                labels = tuple(node.label for node in self._nodes)
                self._loaded = self._graphs.load(self.name, layout, labels)
                self._retire = weakref.finalize(self, self._graphs.retire, self._loaded)
                self._retire.atexit = False
            elif self._changed:
                for future in self._loaded.latest:
                    future.result()
                for number in self._changed:
                    self._loaded.layout.set_record(number, self._record(self._nodes[number]))
                self._loaded.memory.write(self._loaded.layout)
            self._changed.clear()

    def _record(self, node: TaskNode) -> bytes:
        return pack_record(self._tasks[node.task], node.args, node.whole_grid, self._slot)

    def _unload(self) -> None:
        if self._retire is not None:
            self._retire()
        self._loaded = self._retire = None

    # --- running

    def run(self) -> TaskFuture:
        """Run the graph: one doorbell, however many nodes there are. The future's result is None.

        It runs in turn with the tasks of this thread, as if it were one of them. Two runs of one graph never overlap.
        """
        with self._lock:
            self.load()
            assert self._loaded is not None
            future = self._submit(self._loaded.memory.address)
            self._loaded.ran(future)
        return future

    def result(self, node: Place, timeout: float | None = None) -> Any:
        """What a node, or the node of a name, gave back in the last run; waits for it. None for a task without a result."""
        found = self._resolve(node) if isinstance(node, TaskNode | str) else None
        if found is None or found.graph is not self:
            raise ArgumentError(f"node must be a node of this graph, or its name, got {node!r}")
        with self._lock:
            loaded = self._loaded
            if loaded is None or not loaded.latest:
                raise ArgumentError(f"{self.name} has not run since it was changed")
            dtype = self._tasks[found.task].result
        for future in loaded.latest:
            future.result(timeout)
        if not dtype:
            return None
        words: np.ndarray[Any, Any] = loaded.memory.read_results()
        number = loaded.layout.numbers[found.number]
        return words[number : number + 1].view(np.dtype(dtype).newbyteorder("<"))[0].item()

    def __len__(self) -> int:
        return len(self._nodes)

    def __repr__(self) -> str:
        return f"<TaskGraph {self.name} of {len(self._nodes)} tasks>"


def _label(place: Place) -> str:
    return place.label if isinstance(place, TaskNode) else str(place)
