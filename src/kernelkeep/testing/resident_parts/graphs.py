"""Graphs of tasks."""

from __future__ import annotations

import random
import threading
from typing import Any, ClassVar

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...errors import DeviceError, GraphError
from ...resident.resident import Resident
from ..device_parts.common import together
from .common import TIMEOUT, ResidentPart, result_of, silence_of
from .made_graphs import FOLD_TASKS, MadeGraphs, make_graph

__all__ = ["GraphTests"]


class GraphTests(ResidentPart):
    graph_count: ClassVar[int] = 24
    graph_producers: ClassVar[int] = 3

    def folding(self, cache: ProgramCache, made: MadeGraphs, **options: Any) -> Resident:
        return self.make(cache, FOLD_TASKS, made.arrays, silence_seconds=TIMEOUT, **options)

    def settle(self, resident: Resident, made: MadeGraphs) -> None:
        """Compare what ran with what must have."""
        assert resident.drain(TIMEOUT)
        with resident.paused():
            made.check(resident.arrays["v"].numpy(), resident.arrays["ran"].numpy(), resident.blocks)
            resident.arrays["ran"].copy_from(np.zeros_like(made.arrays["ran"]))

    def test_made_graphs_run_exactly_as_often_as_they_are_asked_to(self, cache: ProgramCache) -> None:
        chance = random.Random(1)
        graphs = [make_graph(chance, chance.randint(1, 40)) for _ in range(self.graph_count)]
        made = MadeGraphs(graphs, chance)
        with self.folding(cache, made) as resident:
            for one in graphs:
                graph = one.build(resident, chance)
                one.runs = chance.randint(1, 3)
                for _ in range(one.runs):
                    graph.run()
            self.settle(resident, made)

    def test_graphs_of_many_threads_beside_wide_tasks_and_new_tasks(self, cache: ProgramCache) -> None:
        """Graphs of several blocks help each other, call each other for wide nodes, and the grid ends amid of them."""
        chance = random.Random(2)
        graphs = [make_graph(chance, chance.randint(1, 25), wide=0.1) for _ in range(self.graph_count)]
        made = MadeGraphs(graphs, chance)
        over = threading.Event()
        ticked = [0, 0]
        with self.folding(cache, made, blocks=self.blocks + 1) as resident:

            def disturb(number: int) -> None:
                while not over.is_set():
                    resident.submit(("tick", "tick_all")[number], number).result(TIMEOUT)
                    ticked[number] += 1

            def change() -> None:
                for version in range(3):
                    resident.add(
                        f"more_{version}", "(int at) { if (kk_local_id(0) == 0) kk_atomic_add(ticks[at], 7u); }"
                    )
                    resident.submit(f"more_{version}", 2).result(TIMEOUT)

            def produce(producer: int) -> None:
                mine = random.Random(producer)
                for one in graphs[producer :: self.graph_producers]:
                    graph = one.build(resident, mine)
                    one.runs = mine.randint(1, 3)
                    futures = [graph.run() for _ in range(one.runs)]
                    if mine.random() < 0.5:
                        futures[-1].result(TIMEOUT)

            others = [threading.Thread(target=disturb, args=(number,)) for number in range(2)]
            others.append(threading.Thread(target=change))
            for one in others:
                one.start()
            try:
                together(produce, self.graph_producers)
                assert resident.drain(TIMEOUT)
            finally:
                over.set()
                for one in others:
                    one.join(TIMEOUT)
            self.settle(resident, made)
            blocks = resident.blocks
            assert self.read(resident, "ticks")[:3].tolist() == [ticked[0], ticked[1] * blocks, 21]

    def test_one_graph_run_by_many_threads(self, cache: ProgramCache) -> None:
        chance = random.Random(3)
        one = make_graph(chance, 20)
        made = MadeGraphs([one], chance)
        with self.folding(cache, made) as resident:
            graph = one.build(resident, chance)
            together(lambda _: [graph.run().result(TIMEOUT) for _ in range(3)], 3)
            one.runs = 9
            self.settle(resident, made)

    def test_a_graph_is_in_order_with_the_tasks_of_its_thread(self, cache: ProgramCache) -> None:
        chance = random.Random(4)
        one = make_graph(chance, 5, wide=0.0)
        made = MadeGraphs([one], chance)
        with self.folding(cache, made) as resident:
            graph = one.build(resident, chance)
            before = resident.submit("value", 4)
            graph.run()
            after = resident.submit("value", 4)
            values = made.arrays["v"].tolist()
            assert before.result(TIMEOUT) == values[4]
            one.expect(values)
            assert after.result(TIMEOUT) == values[4]

    def test_arguments_results_and_nodes_change_between_runs(self, resident: Resident) -> None:
        graph = resident.graph()
        first = graph.task("twice", 21)
        last = graph.task("everywhere", 5, after=first)
        graph.run().result(TIMEOUT)
        assert (graph.result(first), graph.result(last)) == (42, resident.blocks)
        running = graph.run()
        first.update(-4)
        graph.run()
        assert running.done()
        assert graph.result(first) == -8
        note = graph.task("note", 0, 9, after=last)
        graph.run()
        assert graph.result(note) is None and graph.result(first) == -8
        assert self.read(resident, "log")[0] == 9
        assert self.read(resident, "part")[: resident.blocks].tolist() == [20] * resident.blocks

    def test_graphs_outlive_added_tasks_and_pauses(self, resident: Resident) -> None:
        graph = resident.graph()
        graph.task("note", 0, 1, name="first")
        graph.task("note", 0, 2, after="first")
        graph.run()
        resident.add("more", "(int at) { if (kk_local_id(0) == 0) kk_atomic_add(total[at], 3); }")
        graph.run().result(TIMEOUT)
        resident.pause()
        future = graph.run()
        resident.resume()
        future.result(TIMEOUT)
        resident.add("note", "(int producer, int value) { if (kk_local_id(0) == 0) log[8 + value] = value; }")
        graph.run().result(TIMEOUT)
        assert self.read(resident, "log")[:12].tolist() == [1, 2, 1, 2, 1, 2, 0, 0, 0, 1, 2, 0]

    def test_bad_graphs_are_refused_and_the_grid_goes_on(self, resident: Resident) -> None:
        graph = resident.graph()
        graph.task("nothing", name="a", after="b")
        graph.task("nothing", name="b", after="a")
        with pytest.raises(GraphError, match="closes a circle") as caught:
            graph.run()
        assert caught.value.edge == ("a", "b")
        assert resident.submit("twice", 4).result(TIMEOUT) == 8

    def test_a_stopped_grid_runs_no_graph(self, cache: ProgramCache) -> None:
        with self.opened(cache) as resident:
            graph, late = resident.graph(), resident.graph()
            graph.task("nothing")
            late.task("nothing")
            graph.run().result(TIMEOUT)
            resident.stop(TIMEOUT)
            for one in (graph, late):
                with pytest.raises(DeviceError, match="stopped"):
                    one.run()
            with pytest.raises(DeviceError, match="stopped"):
                resident.graph()

    @pytest.mark.usefixtures("no_garbage")
    def test_silence_names_the_graph_and_its_node(self, cache: ProgramCache, device: Device) -> None:
        if not device.capabilities.queues:
            pytest.skip(f"{device.spec} has one queue, so nothing ends a task that waits")
        loop = "(int n) { if (kk_local_id(0) == 0) while (kk_atomic_load(flag[0]) == 0) { } }"
        tasks = {"endless": loop, "nothing": "() { }"}
        resident = self.make(cache, tasks, {"flag": np.zeros(4, "i4")}, silence_seconds=0.2)
        try:
            graph = resident.graph(name="the long one")
            graph.task("endless", 7, after=graph.task("nothing"), name="waiter")
            future = graph.run()
            silence_of(future, r"block \d runs the long one .*: node waiter of the long one, endless\(n=7\) for ")
        finally:
            resident.arrays["flag"].copy_from(np.array([1, 0, 0, 0], "i4"))
        assert result_of(future) is None
        resident.close()
