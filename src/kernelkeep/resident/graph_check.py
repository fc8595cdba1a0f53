"""Graphs that could not run, found before they are loaded: circles, waits for nothing, more than fits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import ArgumentError, GraphError

Edge = tuple[int, int]  # numbers of two nodes: the first runs before the second


class GraphLimits(msgspec.Struct, frozen=True):
    """How much fits into a graph.

    A million nodes of the smallest size take 64 MB of device memory. A node of the whole grid has all blocks wait for
    each other, and every other task waits as well: 65,536 of them take 0.65 s on an H200.
    """

    nodes: int = 1 << 20
    edges: int = 1 << 23
    whole_grid: int = 1 << 16

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            given = getattr(self, name)
            if not isinstance(given, int) or isinstance(given, bool) or given < 0:
                raise ArgumentError(f"{name} of GraphLimits must be an integer of at least 0, got {given!r}")


def check_size(labels: Sequence[str], wide: Sequence[bool], edges: Sequence[Edge], limits: GraphLimits) -> None:
    """Refuse a graph that is larger than its limits."""
    if not labels:
        raise GraphError("a graph must have at least one task")
    if len(labels) > limits.nodes:
        raise GraphError(f"a graph can have {limits.nodes} nodes, and {labels[limits.nodes]} is one more")
    if len(edges) > limits.edges:
        edge = (labels[edges[limits.edges][0]], labels[edges[limits.edges][1]])
        raise GraphError(f"a graph can have {limits.edges} edges, and {edge[0]} → {edge[1]} is one more", edge=edge)
    numbers = [number for number, one in enumerate(wide) if one]
    if len(numbers) > limits.whole_grid:
        number = numbers[limits.whole_grid]
        before = next((one for one, after in edges if after == number), None)
        raise GraphError(
            f"a graph can have {limits.whole_grid} nodes for the whole grid, and {labels[number]} is one more",
            edge=None if before is None else (labels[before], labels[number]),
        )


def check_order(labels: Sequence[str], edges: Sequence[Edge]) -> list[int]:
    """The nodes in an order in which they could run one by one; refused if edges form a circle.

    The offending edge is the first one, in the order they were given, that closes a circle with those before it.
    """
    order = _sorted(len(labels), edges)
    if len(order) == len(labels):
        return order
    least, most = 1, len(edges)  # so many edges form a circle: at least, at most
    while least < most:
        middle = (least + most) // 2
        if len(_sorted(len(labels), edges[:middle])) < len(labels):
            most = middle
        else:
            least = middle + 1
    before, after = edges[least - 1]
    circle = [labels[one] for one in [*_path(after, before, edges[: least - 1]), after]]
    raise GraphError(
        f"the edge {labels[before]} → {labels[after]} closes a circle: {' → '.join(_shortened(circle))}",
        edge=(labels[before], labels[after]),
    )


def _sorted(nodes: int, edges: Sequence[Edge]) -> list[int]:
    """The nodes that can run, each after those it waits for; those in a circle and behind it are missing."""
    waits = [0] * nodes
    successors: list[list[int]] = [[] for _ in range(nodes)]
    for before, after in edges:
        successors[before].append(after)
        waits[after] += 1
    order = [node for node in range(nodes) if not waits[node]]
    for node in order:  # it grows meanwhile
        for after in successors[node]:
            waits[after] -= 1
            if not waits[after]:
                order.append(after)
    return order


def _path(start: int, end: int, edges: Sequence[Edge]) -> list[int]:
    """The nodes on a shortest way from one to another, which exists."""
    successors: dict[int, list[int]] = {}
    for before, after in edges:
        successors.setdefault(before, []).append(after)
    came_from = {start: start}
    queue = [start]
    for node in queue:
        for after in successors.get(node, ()):
            if after not in came_from:
                came_from[after] = node
                queue.append(after)
    path = [end]
    while path[-1] != start:
        path.append(came_from[path[-1]])
    return path[::-1]


def _shortened(names: list[str]) -> list[str]:
    return names if len(names) <= 8 else [*names[:4], "…", *names[-3:]]
