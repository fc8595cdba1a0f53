"""Graphs of launches: replayed in order, with arguments that may change between replays."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from ...devices.base import Device, Kernel
from ...devices.registry import open_device
from ...errors import ArgumentError, DeviceError
from ...execution.graph import Graph
from ...programs.portable import Buffer, PortableKernel, Scalar
from ..device_parts.common import groups
from .common import AFFINE, GRID, HOST, ITEMS, DispatchPart

__all__ = ["GraphTests"]


# Each group reads what others wrote.
SHIFT = PortableKernel(
    "shift",
    params=[Buffer("x", "u4", "r"), Buffer("y", "u4", "rw"), Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = x[(i + 4097) % n] + 1u;",
)


def _after(steps: list[tuple[int, int]], times: int = 1) -> np.ndarray[Any, Any]:
    """The numbers after so many rounds of `y = a · y + b`."""
    numbers = HOST
    for _ in range(times):
        for a, b in steps:
            numbers = np.uint32(a) * numbers + np.uint32(b)
    return numbers


class GraphTests(DispatchPart):
    """A replay does what its steps do one by one."""

    def test_steps_run_in_order(self, device: Device, affine: Kernel) -> None:
        y, steps = device.array(HOST), [(2, 1), (3, 2), (1, 7), (5, 0), (2, 1)]
        graph = Graph(device)
        for a, b in steps:
            graph.add(affine.prepare(GRID, (y, a, b, ITEMS)))
        assert len(graph) == 5
        assert (y.numpy() == HOST).all(), "adding launches nothing"
        for times in (1, 2, 3):
            graph.launch()
            np.testing.assert_array_equal(y.numpy(), _after(steps, times))

    def test_a_thousand_steps_are_a_loop_of_a_thousand(self, device: Device, affine: Kernel, saxpy: Kernel) -> None:
        y, expected = device.array(HOST), device.array(HOST)
        x, z = self.ones_and_zeros(device)
        calls = [affine.prepare(GRID, (y, turn % 5 + 1, turn, ITEMS)) for turn in range(490)]
        calls[10:10] = [saxpy.prepare(GRID, (x, z, 1.0, ITEMS))] * 10  # another kernel between them
        graph = Graph(device)
        for call in calls * 2:
            graph.add(call)
        assert len(graph) == 1000
        graph.launch()
        for _ in range(2):
            for turn in range(490):
                affine.launch(GRID, (expected, turn % 5 + 1, turn, ITEMS))
        np.testing.assert_array_equal(y.numpy(), expected.numpy())
        assert (z.numpy() == 20).all()

    def test_each_launch_sees_all_that_the_one_before_wrote(self, device: Device) -> None:
        kernel = device.build(SHIFT.source(device)).kernel()
        steps = 40
        for items in (5000,) if self.is_interpreter(device) else (5000, 3_000_000 if device.info.is_gpu else 20_000):
            host = np.arange(items, dtype=np.uint32)
            x, y = device.array(host), device.array(host)
            graph = Graph(device)
            for step in range(steps):
                arrays = (x, y) if step % 2 == 0 else (y, x)
                graph.add(kernel.prepare(groups(items, 256), (*arrays, items)))
            for times in (1, 2, 3):
                graph.launch()
                expected = (host + 4097 * steps * times) % items + steps * times
                np.testing.assert_array_equal(x.numpy(), expected)
            graph.close()

    def test_a_graph_takes_the_same_launch_twice(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        prepared = affine.prepare(GRID, (y, 3, 1, ITEMS))
        graph = Graph(device).add(prepared).add(prepared)
        graph.launch()
        np.testing.assert_array_equal(y.numpy(), _after([(3, 1)] * 2))
        prepared.update("b", 4)  # changes both places
        graph.launch()
        np.testing.assert_array_equal(y.numpy(), _after([(3, 1), (3, 1), (3, 4), (3, 4)]))

    def test_updates_count_from_the_next_replay(self, device: Device, affine: Kernel) -> None:
        y, steps = device.array(HOST), []
        first, second = affine.prepare(GRID, (y, 1, 0, ITEMS)), affine.prepare(GRID, (y, 1, 0, ITEMS))
        graph = Graph(device).add(first).add(second)
        graph.launch()
        for turn in range(50):  # none of them waits for the replay before
            first.update("a", turn + 2)
            if turn % 2:
                second.update(2, turn)
            graph.launch()
            steps += [(turn + 2, 0), (1, turn if turn % 2 else turn - 1 if turn else 0)]
        np.testing.assert_array_equal(y.numpy(), _after(steps))

    def test_an_array_may_be_replaced_between_replays(self, device: Device, affine: Kernel) -> None:
        first, second = device.array(HOST), device.array(HOST)
        prepared = affine.prepare(GRID, (first, 3, 1, ITEMS))
        graph = Graph(device).add(prepared)
        graph.launch()
        prepared.update("y", second)
        graph.launch()
        graph.launch()
        np.testing.assert_array_equal(first.numpy(), _after([(3, 1)]))
        np.testing.assert_array_equal(second.numpy(), _after([(3, 1)] * 2))

    def test_a_refused_update_changes_nothing(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        prepared = affine.prepare(GRID, (y, 3, 1, ITEMS))
        graph = Graph(device).add(prepared)
        graph.launch()
        with pytest.raises(ArgumentError):
            prepared.update("a", -1)
        graph.launch()
        np.testing.assert_array_equal(y.numpy(), _after([(3, 1)] * 2))

    def test_a_launch_works_in_two_graphs_and_by_itself(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        prepared = affine.prepare(GRID, (y, 2, 1, ITEMS))
        one, two = Graph(device).add(prepared), Graph(device).add(prepared).add(prepared)
        for call in (one.launch, two.launch, prepared):
            call()
        prepared.update("a", 5)
        for call in (one.launch, prepared, two.launch):
            call()
        np.testing.assert_array_equal(y.numpy(), _after([(2, 1)] * 4 + [(5, 1)] * 4))

    def test_steps_may_be_added_after_a_launch(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        graph = Graph(device).add(affine.prepare(GRID, (y, 2, 1, ITEMS)))
        graph.launch()
        graph.add(affine.prepare(GRID, (y, 1, 9, ITEMS)))
        graph.launch()
        np.testing.assert_array_equal(y.numpy(), _after([(2, 1), (2, 1), (1, 9)]))

    def test_a_graph_is_ordered_with_all_other_work(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        graph = Graph(device).add(affine.prepare(GRID, (y, 2, 1, ITEMS)))
        for _ in range(3):
            affine.launch(GRID, (y, 3, 5, ITEMS))
            graph.launch()
        with device.timer() as timer:
            graph.launch()
        assert timer.seconds > 0
        np.testing.assert_array_equal(y.numpy(), _after([(3, 5), (2, 1)] * 3 + [(2, 1)]))

    def test_launches_bound_to_queues_keep_the_graphs_order(self, device: Device, affine: Kernel) -> None:
        if not device.capabilities.queues:
            pytest.skip("this device has one queue")
        many = 1 << 18  # long enough that a wrong order would show
        queue, y = device.queue(), device.array(np.zeros(many, "u4"))
        aside = affine.prepare(groups(many), (y, 3, 1, many), queue=queue)
        plain = affine.prepare(groups(many), (y, 1, 2, many))
        graph, expected = Graph(device), 0
        for _ in range(100):
            graph.add(aside).add(plain)
            expected = (3 * expected + 3) % 2**32
        graph.launch()
        device.synchronize()
        result = y.numpy()
        queue.synchronize()
        assert (result == expected).all(), "the steps did not run one after the other"

    def test_an_empty_graph_does_nothing(self, device: Device) -> None:
        graph = Graph(device)
        graph.launch()
        device.synchronize()
        assert len(graph) == 0
        assert "0 steps" in repr(graph) and device.spec in repr(graph)

    def test_a_graph_keeps_its_launches_alive(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        graph = Graph(device).add(affine.prepare(GRID, (y, 2, 1, ITEMS)))
        gc.collect()
        graph.launch()
        np.testing.assert_array_equal(y.numpy(), _after([(2, 1)]))

    def test_a_dropped_graph_is_collected(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        prepared = affine.prepare(GRID, (y, 2, 1, ITEMS))
        for _ in range(50):
            Graph(device).add(prepared).launch()
        gc.collect()
        prepared.update("a", 1)
        prepared()
        np.testing.assert_array_equal(y.numpy(), _after([(2, 1)] * 50 + [(1, 1)]))

    # --- what is refused

    @pytest.mark.parametrize(
        "wrong", [None, 1, "launch", lambda: None, HOST], ids=["None", "int", "str", "def", "array"]
    )
    def test_only_prepared_launches_are_added(self, device: Device, wrong: Any) -> None:
        graph = Graph(device)
        with pytest.raises(ArgumentError, match=r"kernel\.prepare"):
            graph.add(wrong)
        assert len(graph) == 0

    @pytest.mark.parametrize("wrong", [None, "device", 0])
    def test_a_graph_needs_a_device(self, wrong: Any) -> None:
        with pytest.raises(ArgumentError, match="open_device"):
            Graph(wrong)

    def test_a_launch_of_another_device_is_rejected(self, device: Device, affine: Kernel) -> None:
        with open_device(device.spec) as other:
            y = other.array(HOST)
            theirs = self.build(other, AFFINE).prepare(GRID, (y, 2, 1, ITEMS))
            with pytest.raises(ArgumentError, match="graph"):
                Graph(device).add(theirs)

    # --- what is closed

    def test_a_graph_runs_again_once_a_closed_array_is_replaced(self, device: Device, affine: Kernel) -> None:
        first, second, gone = device.array(HOST), device.array(HOST), device.array(HOST)
        steady, broken = affine.prepare(GRID, (first, 2, 1, ITEMS)), affine.prepare(GRID, (gone, 2, 1, ITEMS))
        graph = Graph(device).add(steady).add(broken)
        graph.launch()
        gone.close()
        for _ in range(2):
            with pytest.raises(DeviceError, match="closed"):
                graph.launch()
        np.testing.assert_array_equal(first.numpy(), _after([(2, 1)]), "nothing ran of a graph that cannot run whole")
        broken.update("y", second)
        graph.launch()
        np.testing.assert_array_equal(first.numpy(), _after([(2, 1)] * 2))
        np.testing.assert_array_equal(second.numpy(), _after([(2, 1)]))

    def test_a_graph_with_an_array_closed_before_the_first_launch_raises(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        graph = Graph(device).add(affine.prepare(GRID, (y, 2, 1, ITEMS)))
        y.close()
        with pytest.raises(DeviceError, match="closed"):
            graph.launch()

    def test_a_graph_with_a_closed_program_raises(self, device: Device) -> None:
        kernel, y = self.build(device, AFFINE), device.array(HOST)
        graph = Graph(device).add(kernel.prepare(GRID, (y, 2, 1, ITEMS)))
        graph.launch()
        kernel.program.close()
        for _ in range(2):
            with pytest.raises(DeviceError, match="program of kernel affine is closed"):
                graph.launch()
        np.testing.assert_array_equal(y.numpy(), _after([(2, 1)]))

    def test_a_closed_graph_raises(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        prepared = affine.prepare(GRID, (y, 2, 1, ITEMS))
        with Graph(device) as graph:
            graph.add(prepared).launch()
        graph.close()
        for use in (graph.launch, lambda: graph.add(prepared), lambda: graph.copy(y, HOST)):
            with pytest.raises(DeviceError, match="closed"):
                use()
        prepared.update("a", 3)
        prepared()  # still works without the graph
        np.testing.assert_array_equal(y.numpy(), _after([(2, 1), (3, 1)]))

    def test_a_graph_of_a_closed_device_raises(self, device: Device) -> None:
        with open_device(device.spec) as other:
            y, host = other.array(HOST), np.zeros(ITEMS, "u4")
            launches = Graph(other).add(self.build(other, AFFINE).prepare(GRID, (y, 2, 1, ITEMS)))
            copies = Graph(other).copy(host, y)
            launches.launch()
            copies.launch()
            other.synchronize()
        for graph in (launches, copies):
            with pytest.raises(DeviceError, match="closed"):
                graph.launch()
        np.testing.assert_array_equal(host, _after([(2, 1)]))
        with pytest.raises(DeviceError, match="closed"):
            Graph(other)
