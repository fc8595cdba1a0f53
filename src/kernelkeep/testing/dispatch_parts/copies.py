"""Copies in a graph: on the device, from the host and to it."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from ...devices.base import Device, Kernel
from ...devices.registry import open_device
from ...errors import ArgumentError, DeviceError
from ...execution.graph import Graph
from .common import GRID, HOST, ITEMS, DispatchPart

__all__ = ["GraphCopyTests"]


class GraphCopyTests(DispatchPart):
    """What is copied is what was there at that step."""

    def test_copies_run_between_launches_in_order(self, device: Device, affine: Kernel) -> None:
        y, before, after = device.array(HOST), device.empty(ITEMS, "u4"), device.empty(ITEMS, "u4")
        graph = Graph(device).copy(before, y).add(affine.prepare(GRID, (y, 3, 1, ITEMS))).copy(after, y)
        expected = HOST
        for _ in range(3):
            graph.launch()
            np.testing.assert_array_equal(before.numpy(), expected)
            expected = np.uint32(3) * expected + np.uint32(1)
            np.testing.assert_array_equal(after.numpy(), expected)

    def test_a_graph_copies_from_host_to_host_through_a_kernel(self, device: Device, affine: Kernel) -> None:
        given, got = HOST.copy(), np.zeros(ITEMS, "u4")
        y = device.empty(ITEMS, "u4")
        prepared = affine.prepare(GRID, (y, 3, 1, ITEMS))
        graph = Graph(device).copy(y, given).add(prepared).copy(got, y)
        for turn in range(5):
            given[:] = HOST + np.uint32(turn * 1000)  # read at each replay
            prepared.update("b", turn)
            graph.launch()
            device.synchronize()
            np.testing.assert_array_equal(got, 3 * (HOST + np.uint32(turn * 1000)) + np.uint32(turn))

    def test_a_graph_copies_from_and_to_pinned_memory(self, device: Device) -> None:
        given, got = device.pinned_empty((3, 1001), "i4"), device.pinned_empty((3, 1001), "i4")
        array = device.empty((3, 1001), "i4")
        graph = Graph(device).copy(array, given).copy(got, array)
        for turn in range(3):
            given[:] = np.arange(3003).reshape(3, 1001) * (turn + 1)
            graph.launch()
            device.synchronize()
            np.testing.assert_array_equal(got, given)

    @pytest.mark.parametrize(
        ("shape", "dtype"), [((), "f4"), ((1,), "u1"), ((2, 3, 5), "f8"), ((7, 1), "c16"), ((3,), "?")]
    )
    def test_copies_of_any_shape_and_dtype(self, device: Device, shape: tuple[int, ...], dtype: str) -> None:
        given = (np.arange(int(np.prod(shape))) * 3 + 1).astype(dtype).reshape(shape)
        got, first, second = np.zeros(shape, dtype), device.empty(shape, dtype), device.empty(shape, dtype)
        Graph(device).copy(first, given).copy(second, first).copy(got, second).launch()
        device.synchronize()
        np.testing.assert_array_equal(got, given)

    def test_copies_without_bytes_are_left_out(self, device: Device) -> None:
        array, other = device.empty((0, 3), "f4"), device.empty((0, 3), "f4")
        Graph(device).copy(array, other).copy(array, np.empty((0, 3), "f4")).launch()
        device.synchronize()

    def test_a_graph_keeps_what_it_copies_alive(self, device: Device) -> None:
        y = device.empty(ITEMS, "u4")
        graph = Graph(device).copy(y, HOST + np.uint32(5)).copy(y, device.array(HOST + np.uint32(7)))
        second = Graph(device).copy(y, HOST + np.uint32(5))
        gc.collect()
        _ = [np.full(ITEMS, 99, "u4") for _ in range(20)], [device.array(HOST * 0) for _ in range(20)]
        graph.launch()
        np.testing.assert_array_equal(y.numpy(), HOST + 7)
        second.launch()
        np.testing.assert_array_equal(y.numpy(), HOST + 5)

    @pytest.mark.parametrize("side", ["target", "origin"])
    def test_a_copy_with_a_closed_array_raises(self, device: Device, side: str) -> None:
        target, origin = device.array(HOST), device.array(HOST)
        graph = Graph(device).copy(target, origin)
        graph.launch()
        (target if side == "target" else origin).close()
        for _ in range(2):
            with pytest.raises(DeviceError, match="closed"):
                graph.launch()
        with pytest.raises(DeviceError, match="closed"):
            Graph(device).copy(target, origin)

    def test_copies_that_do_not_fit_are_rejected(self, device: Device) -> None:
        array, read_only = device.array(HOST), HOST.copy()
        read_only.flags.writeable = False
        wrong: list[tuple[Any, Any, str]] = [
            (array, device.empty(ITEMS + 1, "u4"), "257"), (array, device.empty((ITEMS, 1), "u4"), "257"),
            (array, device.empty(ITEMS, "i4"), "int32"), (array, np.zeros(ITEMS, "u8"), "uint64"),
            (np.zeros(ITEMS - 1, "u4"), array, "256"), (np.zeros((ITEMS, 2), "u4")[:, 0], array, "contiguous"),
            (array, np.zeros(2 * ITEMS, "u4")[::2], "contiguous"), (read_only, array, "writeable"),
            (HOST.copy(), HOST, "host"), (array, [1] * ITEMS, "list"), (None, array, "NoneType"),
        ]  # fmt: skip
        graph = Graph(device)
        for target, origin, named in wrong:
            with pytest.raises(ArgumentError, match=named):
                graph.copy(target, origin)
        assert len(graph) == 0
        graph.copy(array, read_only).launch()  # reading from it is allowed
        np.testing.assert_array_equal(array.numpy(), HOST)

    def test_copies_of_another_device_are_rejected(self, device: Device) -> None:
        with open_device(device.spec) as other:
            ours, theirs = device.array(HOST), other.array(HOST)
            for target, origin in ((ours, theirs), (theirs, ours), (theirs, HOST)):
                with pytest.raises(ArgumentError, match="graph"):
                    Graph(device).copy(target, origin)
