"""Building graphs: what is refused, and what a graph does with the device's memory."""

from __future__ import annotations

import gc
import pickle
import random
import struct

import pytest
from hypothesis import given, settings

from kernelkeep.errors import ArgumentError, GraphError
from kernelkeep.resident.graph import TaskGraph, TaskNode
from kernelkeep.resident.graph_check import GraphLimits
from kernelkeep.resident.task import prepare

from .graphs import LANGUAGE, SLOT, TASKS, Host, acyclic, chances, run_image

Edges = list[tuple[int, int]]


def closes_first(edges: Edges) -> tuple[int, int]:
    """The first edge that closes a circle, found one by one."""
    successors: dict[int, set[int]] = {}
    for before, after in edges:
        reached, queue = {after}, [after]
        for node in queue:
            for one in successors.get(node, ()):
                if one not in reached:
                    reached.add(one)
                    queue.append(one)
        if before in reached:
            return before, after
        successors.setdefault(before, set()).add(after)
    raise AssertionError("no circle")


def named(
    host: Host, nodes: int, edges: Edges, limits: GraphLimits | None = None, wide: tuple[int, ...] = ()
) -> TaskGraph:
    """A graph whose nodes are named by their numbers, and wait for names."""
    graph = host.graph(limits)
    for node in range(nodes):
        if node in wide:
            graph.task("wide", node, name=str(node))
        else:
            graph.task("mix", node, 1, name=str(node))
    for before, after in edges:
        graph.edge(str(before), str(after))
    return graph


def bad_graph(chance: random.Random) -> tuple[str, int, Edges, tuple[int, ...]]:
    """(what is wrong, nodes, edges, nodes of the whole grid)"""
    nodes, edges = acyclic(chance, 8)
    kind = chance.choice(["circle", "nothing signals", "leads nowhere", "whole grid"])
    at, node = chance.randint(0, len(edges)), chance.randrange(nodes)
    if kind == "circle":
        # An edge back, or of a node to itself, wherever a way leads forth; and perhaps more of them.
        for _ in range(chance.randint(1, 3)):
            before, after = chance.choice([*((after, before) for before, after in edges), (node, node)])
            edges = [*edges[:at], (before, after), *edges[at:]]
    elif kind == "nothing signals":
        edges = [*edges[:at], (nodes + 5, node), *edges[at:]]
    elif kind == "leads nowhere":
        edges = [*edges[:at], (node, nodes + 5), *edges[at:]]
    return kind, nodes, edges, tuple(range(nodes)) if kind == "whole grid" else ()


@settings(max_examples=100, deadline=None)
@given(chances())
def test_10_000_bad_graphs_are_refused_with_the_edge_that_is_wrong(chance: random.Random) -> None:
    for _ in range(100):
        refuse(*bad_graph(chance))


def refuse(kind: str, nodes: int, edges: Edges, wide: tuple[int, ...]) -> None:
    limits = GraphLimits(whole_grid=nodes - 1) if kind == "whole grid" else None
    host = Host()
    graph = named(host, nodes, edges, limits, wide)
    with pytest.raises(GraphError) as caught:
        graph.run()
    assert not host.grid.memories and not host.ran
    if kind == "circle":
        before, after = closes_first(edges)
        expected: tuple[str, str] | None = (str(before), str(after))
    elif kind == "whole grid":
        into = [before for before, after in edges if after == nodes - 1]
        expected = (str(into[0]), str(nodes - 1)) if into else None
    else:
        expected = next((str(a), str(b)) for a, b in edges if nodes + 5 in (a, b))
    assert caught.value.edge == expected
    if expected is not None and kind != "whole grid":
        assert expected[0] in str(caught.value) and expected[1] in str(caught.value)


@settings(max_examples=20, deadline=None)
@given(chances())
def test_good_graphs_are_loaded_as_they_were_built(chance: random.Random) -> None:
    for _ in range(10):
        nodes, edges = acyclic(chance)
        host = Host()
        named(host, nodes, edges).run()
        (memory,) = host.grid.memories
        assert host.ran == [memory.address]
        ran = [struct.unpack_from("<IIiI", record) for _, record in run_image(memory.image, SLOT, chance)]
        order = [to for _, _, to, _ in ran]
        assert sorted(order) == list(range(nodes))
        assert all(order.index(before) < order.index(after) for before, after in edges)


def test_a_circle_is_told_whole() -> None:
    graph = Host().graph()
    graph.task("mix", 0, 1, name="a", after="c")
    graph.task("mix", 0, 1, name="b", after=["a"])
    graph.task("mix", 0, 1, name="c", after="b")
    with pytest.raises(GraphError, match="the edge b → c closes a circle: c → a → b → c") as caught:
        graph.check()
    assert caught.value.edge == ("b", "c")
    assert pickle.loads(pickle.dumps(caught.value)).edge == ("b", "c")


def test_nodes_of_other_graphs_are_refused() -> None:
    host = Host()
    one, other = host.graph(), host.graph()
    node = one.task("mix", 0, 1)
    with pytest.raises(GraphError, match="own nodes only") as caught:
        other.task("mix", 0, 1, after=node, name="late")
    assert caught.value.edge == ("mix[0]", "late")
    assert len(other) == 0
    with pytest.raises(ArgumentError, match="nodes of this graph"):
        other.task("mix", 0, 1, after=[3])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("args", "complaint"),
    [((1,), "task mix takes 2 arguments"), ((0.5, 1), "task mix: argument to"), ((0, -1), "task mix: argument k")],
)
def test_arguments_are_checked_as_in_submit(args: tuple[float, ...], complaint: str) -> None:
    graph = Host().graph()
    with pytest.raises(ArgumentError, match=complaint):
        graph.task("mix", *args)
    node = graph.task("mix", 0, 1)
    with pytest.raises(ArgumentError, match=complaint):
        node.update(*args)
    assert node.args == (0, 1)


def test_too_many_nodes_or_edges_are_refused() -> None:
    host = Host()
    with pytest.raises(GraphError, match="can have 3 nodes, and 3 is one more"):
        named(host, 4, [], GraphLimits(nodes=3)).check()
    with pytest.raises(GraphError, match="can have 1 edges, and 1 → 2 is one more") as caught:
        named(host, 3, [(0, 1), (1, 2)], GraphLimits(edges=1)).check()
    for wrong in ("x", -1, True):
        with pytest.raises(
            ArgumentError, match=f"nodes of GraphLimits must be an integer of at least 0, got {wrong!r}"
        ):
            GraphLimits(nodes=wrong)  # type: ignore[arg-type]
    assert caught.value.edge == ("1", "2")
    with pytest.raises(GraphError, match="at least one task"):
        host.graph().run()


def test_a_graph_is_loaded_once_and_again_when_it_has_grown() -> None:
    host = Host()
    graph = host.graph()
    first = graph.task("mix", 0, 1)
    graph.load()
    graph.run()
    graph.run()
    assert len(host.grid.memories) == 1 and host.grid.memories[0].writes == 1
    first.before(graph.task("mix", 1, 1))
    graph.run()
    assert host.ran == [4096, 4096, 8192]
    host.loaded.sweep()
    assert host.loaded.at(4096) is None and host.loaded.at(8192) is not None


def test_other_arguments_are_written_before_the_next_run_and_not_during_one() -> None:
    host = Host()
    graph = host.graph()
    node = graph.task("mix", 0, 1)
    host.over = False
    running = graph.run()
    node.update(5, 6)
    assert host.grid.memories[0].writes == 1
    graph.run()
    assert running.done() and host.grid.memories[0].writes == 2
    (record,) = [record for _, record in run_image(host.grid.memories[0].image, SLOT, random.Random(0))]
    assert struct.unpack_from("<iI", record, 8) == (5, 6)


def test_a_graph_that_is_collected_is_freed_when_its_run_is_over() -> None:
    host = Host()
    graph = host.graph()
    graph.task("mix", 0, 1)
    host.over = False
    running = graph.run()
    del graph
    gc.collect()
    host.loaded.sweep()
    assert host.loaded.at(4096) is not None
    running.result()
    host.loaded.sweep()
    assert host.loaded.at(4096) is None


def test_a_task_that_was_replaced_is_laid_out_again() -> None:
    host = Host()
    graph = host.graph()
    graph.task("mix", 3, 9)
    graph.run()
    host.tasks["mix"] = prepare("mix", "(uint a, double b) { }", 9, [], 64, LANGUAGE)
    graph.run()
    ((_, record),) = run_image(host.grid.memories[-1].image, SLOT, random.Random(0))
    assert struct.unpack_from("<I4xd", record, 8) == (3, 9.0)
    host.tasks["mix"] = prepare("mix", "(uint a) { }", 10, [], 64, LANGUAGE)
    with pytest.raises(ArgumentError, match="takes 1 argument "):
        graph.run()


def test_results_are_read_by_node() -> None:
    host = Host()
    graph = host.graph()
    first = graph.task("get", 0)
    second = graph.task("mix", 0, 1, after=first)
    with pytest.raises(ArgumentError, match="has not run"):
        graph.result(first)
    graph.run()
    host.grid.memories[0].results[0] = 77 | 5 << 32
    assert graph.result(first) == 77
    assert graph.result(second) is None
    with pytest.raises(ArgumentError, match="a node of this graph"):
        graph.result(TaskNode(host.graph(), 0, "get", (0,), None, None))


def test_a_whole_grid_node_has_its_mark() -> None:
    host = Host()
    graph = host.graph()
    graph.task("wide", 1)
    graph.task("wide", 1, whole_grid=False)
    graph.task("mix", 1, 1, whole_grid=True)
    graph.load()
    records = [record for _, record in run_image(host.grid.memories[0].image, SLOT, random.Random(0))]
    marks = sorted(struct.unpack_from("<I", record)[0] for record in records)
    wide, mix = TASKS["wide"].number, TASKS["mix"].number
    assert marks == [wide, mix | 0x80000000, wide | 0x80000000]
    with pytest.raises(ArgumentError, match="whole_grid must be"):
        graph.task("mix", 1, 1, whole_grid=1)  # type: ignore[arg-type]


def test_names_are_given_once() -> None:
    graph = Host().graph()
    graph.task("mix", 0, 1, name="a")
    with pytest.raises(ArgumentError, match="no other node"):
        graph.task("mix", 0, 1, name="a")
    assert [node.label for node in graph.nodes] == ["a"]
