"""Views share memory with their array: parts and other shapes of it, in copies, launches and executors."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from ...devices.array import Array
from ...devices.base import Device, Kernel
from ...errors import ArgumentError, DeviceError, Unsupported
from ...execution.graph import Graph
from .common import DevicePart, groups

__all__ = ["ViewTests"]


class ViewTests(DevicePart):
    """What is written through a view is in the array, and the other way round."""

    @pytest.fixture
    def step(self, device: Device) -> int:
        """How many float32 lie between two places where a launch takes views."""
        if not device.capabilities.view_alignment:
            pytest.skip(f"{device.spec} has no views of parts of arrays")
        return max(1, device.capabilities.view_alignment // 4)

    def test_fill_zeros_and_full(self, device: Device) -> None:
        np.testing.assert_array_equal(device.zeros((3, 5)).numpy(), np.zeros((3, 5), "f4"))
        for dtype, value in (
            ("f4", 1.5),
            ("i4", -7),
            ("u1", 200),
            ("i2", -3),
            ("f8", 0.1),
            ("i8", 1 << 40),
            ("?", True),
        ):
            made = device.full(1001, value, dtype)
            np.testing.assert_array_equal(made.numpy(), np.full(1001, value, dtype))
            assert made.fill(0) is made
            np.testing.assert_array_equal(made.numpy(), np.zeros(1001, dtype))
        assert (device.full(2, 1).dtype, device.full(2, 1.0).dtype) == (np.dtype("i4"), np.dtype("f4"))
        assert device.full(2, np.float64(1)).dtype == np.float64
        assert device.zeros(0).numpy().shape == (0,)

    @pytest.mark.parametrize(
        ("dtype", "value"), [("u1", 256), ("u1", -1), ("i4", 1.5), ("f4", 1e300), ("i4", [1]), ("f4", "x")]
    )
    def test_fill_refuses_what_does_not_fit(self, device: Device, dtype: str, value: object) -> None:
        array = device.zeros(4, dtype)
        with pytest.raises(ArgumentError):
            array.fill(value)
        np.testing.assert_array_equal(array.numpy(), np.zeros(4, dtype))

    def test_numbers_without_a_dtype_get_32_bits(self, device: Device) -> None:
        kinds = [(1.5, "f4"), ([1, 2], "i4"), ([[1.5], [2]], "f4"), ([True], "?"), ([1j], "c8"), (np.arange(3.0), "f8")]
        for data, dtype in kinds:
            assert device.array(data).dtype == np.dtype(dtype)
        assert device.array([1, 2], dtype="f8").numpy().tolist() == [1.0, 2.0]
        assert device.array(np.arange(3.0), "f4").dtype == np.float32
        assert device.array(device.array([1, 2]), "f4").numpy().tolist() == [1.0, 2.0]
        assert device.array([1 << 40]).numpy().tolist() == [1 << 40]
        with pytest.raises(ArgumentError, match=r"np\.float64"):
            device.array([1.0, 1e300])
        with pytest.raises(ArgumentError, match="fit into uint8"):
            device.array([1, 256], dtype="u1")
        assert device.zeros(2, "f8").copy_from([1, 2.5]).numpy().tolist() == [1.0, 2.5]

    def test_reshape_is_a_view(self, device: Device) -> None:
        array = device.array(np.arange(12, dtype="f4"))
        table = array.reshape(3, -1)
        assert table.shape == (3, 4)
        table.fill(2)
        np.testing.assert_array_equal(array.numpy(), np.full(12, 2, "f4"))
        assert array.reshape((2, 6)).reshape(12).shape == (12,)
        for wrong in ((5, 3), (-1, -1), (5, -1), (-2, -6), (1.5,)):
            with pytest.raises(ArgumentError):
                array.reshape(*wrong)

    def test_slices_share_memory(self, device: Device, step: int) -> None:
        host = np.arange(4 * step * 8, dtype="f4").reshape(4, step * 8)
        array = device.array(host)
        for key in (
            1,
            -1,
            slice(1, 3),
            (2, slice(3, 7)),
            slice(2, None),
            (0, -1),
            ...,
            (..., 0, slice(0, 5)),
            slice(3, 1),
        ):
            np.testing.assert_array_equal(array[key].numpy(), host[key])
        array[2].fill(-1)
        array[0, 3:5].copy_from(np.array([8, 9], "f4"))
        array[1, :3].copy_from(array[3, :3])
        array[3].copy_from(array[0])
        array[0, 1:6].copy_from(array[0, 2:7])  # which overlap
        host[2], host[0, 3:5] = -1, [8, 9]
        host[1, :3] = host[3, :3]
        host[3] = host[0]
        host[0, 1:6] = host[0, 2:7].copy()
        np.testing.assert_array_equal(array.numpy(), host)
        np.testing.assert_array_equal(array[1:3][1].numpy(), host[2])
        assert [row.shape for row in array] == [(step * 8,)] * 4

    @pytest.mark.parametrize(
        "key", [(slice(None), 1), slice(None, None, 2), slice(None, None, -1), 9, "a", True, (0, 0, 0)]
    )
    def test_what_is_not_contiguous_is_refused(self, device: Device, key: object) -> None:
        with pytest.raises(ArgumentError):
            device.zeros((4, 6))[key]

    def test_launch_on_views(self, device: Device, saxpy: Kernel, step: int) -> None:
        host = np.arange(step * 8 + 5, dtype="f4")
        array = device.array(host)
        x, y = array[: step * 2], array[step * 3 : step * 5]
        n = step * 2
        for _ in range(2):  # the second time they may be bound already
            saxpy.launch(groups(n), (x, y, 2, n))
            host[step * 3 : step * 5] += 2 * host[:n]
        saxpy.launch(groups(5), (array, array[step * 8 :], 1, 5))
        host[step * 8 :] += host[:5]
        prepared = saxpy.prepare(groups(n), (x, y, 1, n))
        prepared()
        host[step * 3 : step * 5] += host[:n]
        prepared.update(1, array[step * 5 : step * 7])
        prepared()
        host[step * 5 : step * 7] += host[:n]
        np.testing.assert_array_equal(array.numpy(), host)

    def test_launch_refuses_a_view_that_the_driver_cannot_bind(self, device: Device, saxpy: Kernel, step: int) -> None:
        array = device.zeros(step * 4)
        if step == 1:
            saxpy.launch(1, (array, array[1:], 1, 1))
            return
        with pytest.raises(Unsupported, match="view_alignment"):
            saxpy.launch(1, (array, array[1:], 1, 1))
        with pytest.raises(Unsupported, match="view_alignment"):
            saxpy.prepare(1, (array, array[1:], 1, 1))
        assert device.array(array[1:]).offset == 0

    def test_other_libraries_get_a_host_copy_of_any_view(self, device: Device, step: int) -> None:
        pytest.importorskip("numpy", "2.1", reason="NumPy asks for host copies since 2.1")
        view = device.array(np.arange(step * 4, dtype="f4"))[1:4]
        np.testing.assert_array_equal(np.from_dlpack(view, device="cpu"), [1, 2, 3])

    def test_graphs_take_views(self, device: Device, saxpy: Kernel, step: int) -> None:
        n = step * 2
        host, result = np.arange(n, dtype="f4"), np.empty(n, "f4")
        array = device.zeros(step * 6)
        x, y, z = array[:n], array[n : 2 * n], array[2 * n :]
        graph = Graph(device)
        graph.copy(x, host)
        graph.copy(y, x)
        graph.add(saxpy.prepare(groups(n), (x, y, 2, n)))
        graph.copy(z, y)
        graph.copy(result, z)
        for _ in range(2):
            graph.launch()
            device.synchronize()
            np.testing.assert_array_equal(result, 3 * host)
        np.testing.assert_array_equal(array.numpy(), np.concatenate([host, 3 * host, 3 * host]))

    def test_memory_lives_as_long_as_a_view(self, device: Device, saxpy: Kernel, step: int) -> None:
        def make() -> Array:
            return device.array(np.arange(step * 4, dtype="f4"))[step : step * 3]

        view = make()
        gc.collect()
        others = [device.full(step * 4, -1.0) for _ in range(8)]  # which would get the memory if it were free
        saxpy.launch(groups(step), (view, others[0], 1, step))
        np.testing.assert_array_equal(view.numpy(), np.arange(step, step * 3, dtype="f4"))
        whole = device.array(np.arange(step * 4, dtype="f4"))
        part = whole[step:]
        prepared = saxpy.prepare(1, (part, others[0], 1, 1))
        whole.close()
        np.testing.assert_array_equal(part.numpy(), np.arange(step, step * 4, dtype="f4"))
        prepared()
        part.close()
        for use in (part.numpy, lambda: part[:1], lambda: part.fill(0), prepared):
            with pytest.raises(DeviceError):
                use()
        whole = device.recycled_empty((step * 4,)).fill(3)
        part = whole[:step]
        del whole
        gc.collect()
        device.recycled_empty((step * 4,)).fill(4)
        np.testing.assert_array_equal(part.numpy(), np.full(step, 3, "f4"))

    def test_views_of_bytes(self, device: Device) -> None:
        at = device.capabilities.view_alignment
        if not at:
            with pytest.raises(Unsupported, match="view_alignment"):
                device.zeros(8)[1:]
            return
        host = np.arange(at * 3 + 3, dtype="u4").astype("u1")
        array = device.array(host)
        array[at : at + 5].fill(9)
        array[1:4].copy_from(np.array([7, 8, 9], "u1"))
        host[at : at + 5], host[1:4] = 9, [7, 8, 9]
        np.testing.assert_array_equal(array[at + 2 : at + 7].numpy(), host[at + 2 : at + 7])
        np.testing.assert_array_equal(array.numpy(), host)
