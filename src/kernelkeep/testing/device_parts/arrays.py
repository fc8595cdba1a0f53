"""Arrays: every dtype and shape goes to the device and comes back as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ...devices.array import Array
from ...devices.base import Device, Kernel
from ...devices.registry import open_device
from ...errors import ArgumentError, DeviceError
from .common import DevicePart, groups

__all__ = ["ArrayTests"]

_STRUCT = np.dtype([("id", "i4"), ("weight", "f8"), ("tag", "S3"), ("pair", "u2", (2,))])
_DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "S5", "M8[s]", _STRUCT]


class _Guest:
    """Somebody else's array: nothing but DLPack."""

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self._host = host

    def __dlpack__(self, **wishes: Any) -> Any:
        return self._host.__dlpack__(**wishes)

    def __dlpack_device__(self) -> Any:
        return self._host.__dlpack_device__()


def _pattern(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Contents of which every byte matters; values that compare equal to themselves."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    if kind.kind in "?b":
        return np.array(np.arange(count) % 3 == 0).reshape(shape)
    if kind.names:
        host = np.zeros(count, kind)
        host["id"], host["weight"] = np.arange(count), np.arange(count) / 7
        host["tag"], host["pair"] = b"abc", np.arange(count * 2).reshape(count, 2)
        return host.reshape(shape)
    if kind.kind == "c":
        return (np.arange(count) * (1 - 2j)).astype(kind).reshape(shape)
    return (np.arange(count) % 120).astype(kind).reshape(shape)


def _same(array: Array, host: np.ndarray[Any, Any]) -> None:
    back = array.numpy()
    assert (array.shape, array.dtype) == (host.shape, host.dtype)
    assert (back.shape, back.dtype) == (host.shape, host.dtype)
    assert (array.nbytes, array.size, array.ndim) == (host.nbytes, host.size, host.ndim)
    np.testing.assert_array_equal(back, host)


class ArrayTests(DevicePart):
    """Shape and dtype are kept; what does not fit is refused in a sentence."""

    @pytest.mark.parametrize("dtype", _DTYPES, ids=str)
    def test_every_dtype_survives_the_round_trip(self, device: Device, dtype: Any) -> None:
        host = _pattern((37,), dtype)
        _same(device.array(host), host)
        target = device.empty((37,), dtype)
        _same(target.copy_from(host), host)

    @pytest.mark.parametrize("shape", [(), (1,), (7,), (1, 1, 1), (5, 7, 3), (2, 3, 1, 5), (0,), (3, 0, 2), (100_003,)])
    def test_every_shape_survives_the_round_trip(self, device: Device, shape: tuple[int, ...]) -> None:
        host = _pattern(shape, "f4")
        _same(device.array(host), host)
        _same(device.empty(shape, "f4").copy_from(host), host)
        if host.size == 0:
            _same(device.empty(shape, "f4"), host)

    def test_non_contiguous_arrays_are_copied(self, device: Device) -> None:
        host = np.arange(120, dtype="i4").reshape(10, 12)
        for view in (host.T, host[::2, ::3], host[::-1], host[:, 5], np.broadcast_to(host[0], (4, 12))):
            _same(device.array(view), view)
            _same(device.empty(view.shape, "i4").copy_from(view), view)

    @pytest.mark.parametrize("dtype", [">i4", ">f8", ">u2"])
    def test_big_endian_arrays_are_converted(self, device: Device, dtype: str) -> None:
        host = np.arange(9).astype(dtype)
        array = device.array(host)
        assert array.dtype == np.dtype(dtype).newbyteorder("=")
        np.testing.assert_array_equal(array.numpy(), host)
        assert device.empty(3, dtype).dtype.isnative

    def test_lists_and_numbers_become_arrays(self, device: Device) -> None:
        for data, dtype in (([1.5, 2.5], "f4"), ([[1, 2], [3, 4]], "i4"), (7, "i4"), ([], "f4"), ([True, False], "?")):
            _same(device.array(data), np.asarray(data, dtype))
        _same(device.array(np.float64(2)), np.asarray(2.0))

    def test_read_only_host_arrays_are_uploaded(self, device: Device) -> None:
        host = np.arange(5, dtype="f4")
        host.flags.writeable = False
        _same(device.array(host), host)

    def test_host_memory_comes_in_through_dlpack(self, device: Device) -> None:
        host = np.arange(24, dtype="f4").reshape(4, 6)
        array = device.array(_Guest(host))
        _same(array, host)
        host[:] = 0
        assert array.numpy().any(), "host data is copied, not shared"
        _same(device.empty((4, 6), "f4").copy_from(_Guest(host)), host)

    def test_host_changes_do_not_reach_the_device(self, device: Device) -> None:
        host = np.ones(1001, "f4")
        array = device.array(host)
        host[:] = 5
        assert (array.numpy() == 1).all()
        back = array.numpy()
        back[:] = 9
        assert (array.numpy() == 1).all()

    def test_numpy_writes_into_out(self, device: Device) -> None:
        array = device.array(np.arange(6, dtype="f4").reshape(2, 3))
        out = np.zeros((2, 3), "f4")
        assert array.numpy(out) is out
        assert (out == np.arange(6).reshape(2, 3)).all()
        read_only = np.zeros((2, 3), "f4")
        read_only.flags.writeable = False
        for wrong in (np.zeros((3, 2), "f4"), np.zeros((2, 3), "f8"), np.zeros((3, 2), "f4").T, read_only):
            with pytest.raises(ArgumentError):
                array.numpy(wrong)

    def test_numpy_functions_take_device_arrays(self, device: Device) -> None:
        array = device.array([1.0, 2.0, 3.5])
        assert np.asarray(array).tolist() == [1.0, 2.0, 3.5]
        assert np.asarray(array, dtype="i4").tolist() == [1, 2, 3]
        assert len(array) == 3
        with pytest.raises(TypeError):
            len(device.array(1.0))

    def test_copy_from_copies_device_arrays(self, device: Device) -> None:
        origin = device.array(np.arange(1001, dtype="i4"))
        target = device.empty(1001, "i4")
        assert target.copy_from(origin) is target
        origin.copy_from(np.zeros(1001, "i4"))
        assert (target.numpy() == np.arange(1001)).all()
        assert (device.array(target).numpy() == np.arange(1001)).all()

    def test_array_of_a_device_array_is_a_copy(self, device: Device) -> None:
        first = device.array([1, 2, 3])
        second = device.array(first)
        first.copy_from([4, 5, 6])
        assert second.numpy().tolist() == [1, 2, 3]

    def test_copy_from_rejects_what_does_not_fit(self, device: Device) -> None:
        array = device.array(np.arange(6, dtype="f4"))
        for wrong in (np.zeros(6, "f8"), np.zeros(5, "f4"), np.zeros((2, 3), "f4"), device.empty(6, "i4"), 1.0):
            with pytest.raises(ArgumentError):
                array.copy_from(wrong)
        with pytest.raises(ArgumentError):
            array.copy_from(device.empty((6, 1), "f4"))
        assert (array.numpy() == np.arange(6)).all()

    def test_arrays_of_another_device_are_rejected(self, device: Device, saxpy: Kernel) -> None:
        with open_device(device.spec) as other:
            theirs, ours = other.array(np.ones(4, "f4")), device.array(np.zeros(4, "f4"))
            with pytest.raises(ArgumentError):
                ours.copy_from(theirs)
            with pytest.raises(ArgumentError, match=r"argument 0 \(x\)"):
                saxpy.launch(1, (theirs, ours, 1.0, 4))
            assert (device.array(theirs).numpy() == 1).all()
            assert (ours.numpy() == 0).all()

    def test_a_kernel_takes_an_array_without_elements(self, device: Device, saxpy: Kernel) -> None:
        x, y = device.empty(0, "f4"), device.array(np.zeros((3, 0), "f4"))
        saxpy.launch(1, (x, y, 1.0, 0))
        device.synchronize()
        assert y.numpy().shape == (3, 0)

    @pytest.mark.parametrize(
        "data",
        [[object()], np.array([None, 1]), {"a": 1}, [[1], [2, 3]], None],
        ids=["object", "objects", "dict", "ragged", "None"],
    )
    def test_array_rejects_what_is_not_array_data(self, device: Device, data: Any) -> None:
        with pytest.raises(ArgumentError):
            device.array(data)

    @pytest.mark.parametrize("shape", [-1, (3, -1), 2.5, "3", (2, None)])
    def test_empty_rejects_wrong_shapes(self, device: Device, shape: Any) -> None:
        with pytest.raises(ArgumentError, match="shape"):
            device.empty(shape)

    @pytest.mark.parametrize("dtype", ["nonsense", object, 5])
    def test_empty_rejects_wrong_dtypes(self, device: Device, dtype: Any) -> None:
        with pytest.raises(ArgumentError):
            device.empty(3, dtype)

    def test_a_closed_array_raises(self, device: Device, saxpy: Kernel) -> None:
        array, other = device.array(np.ones(4, "f4")), device.array(np.zeros(4, "f4"))
        array.close()
        array.close()
        assert "closed" in repr(array)
        for use in (array.numpy, lambda: array.copy_from(np.ones(4, "f4")), lambda: other.copy_from(array)):
            with pytest.raises(DeviceError, match="closed"):
                use()
        with pytest.raises(DeviceError, match=r"argument 0 \(x\).*closed"):
            saxpy.launch(1, (array, other, 1.0, 4))

    def test_an_array_may_be_closed_while_a_launch_uses_it(self, device: Device, saxpy: Kernel) -> None:
        # The memory must stay until the launch is done.
        count = 1 << (14 if device.info.is_interpreter else 20)
        y = device.array(np.zeros(count, "f4"))
        for _ in range(20):
            x = device.array(np.ones(count, "f4"))
            saxpy.launch(groups(count), (x, y, 1.0, count))
            x.close()
        assert (y.numpy() == 20).all()

    def test_pinned_memory_survives_the_round_trip(self, device: Device) -> None:
        for shape, dtype in (((1001,), "f4"), ((3, 5), "i8"), ((), "u1"), ((0,), "f4")):
            host = device.pinned_empty(shape, dtype)
            assert (host.shape, host.dtype) == (shape, np.dtype(dtype))
            host[...] = _pattern(shape, dtype)
            array = device.array(host)
            _same(array, _pattern(shape, dtype))
            back = device.pinned_empty(shape, dtype)
            array.numpy(back)
            np.testing.assert_array_equal(back, host)

    def test_pinned_memory_outlives_its_parts(self, device: Device) -> None:
        view = device.pinned_empty((1 << 16,), "i4")[100:200]
        view[:] = np.arange(100)
        for _ in range(50):
            device.pinned_empty((1 << 16,), "i4")[:] = -1
        assert (view == np.arange(100)).all()

    def test_recycled_memory_keeps_its_order(self, device: Device, saxpy: Kernel) -> None:
        # Each result is dropped while the device may still compute it, and the next one gets its memory.
        n = 1 << (14 if self.is_interpreter(device) else 18)
        x, seen = device.array(np.ones(n, "f4")), set()
        for k in range(20):
            y = device.recycled_empty((n,), "f4").copy_from(np.full(n, k, "f4"))
            seen.add(id(y.handle) if not isinstance(y.handle, int) else y.handle)
            saxpy.launch(groups(n), (x, y, np.float32(2), np.int32(n)))
            if k % 5 == 0:
                assert (y.numpy() == k + 2).all()
            del y
        assert len(seen) == 1, "its memory was not used again"

    def test_recycled_memory_is_never_in_use(self, device: Device, saxpy: Kernel) -> None:
        first = device.recycled_empty((1000,), "f4").copy_from(np.full(1000, 1, "f4"))
        second = device.recycled_empty((1000,), "f4").copy_from(np.full(1000, 2, "f4"))
        assert (first.numpy() == 1).all() and (second.numpy() == 2).all()
        second.close()
        third = device.recycled_empty((1000,), "f4").copy_from(np.full(1000, 3, "f4"))
        with pytest.raises(DeviceError):
            second.numpy()
        prepared = saxpy.prepare(groups(1000), (first, third, np.float32(1), np.int32(1000)))
        prepared()
        handle = third.handle
        third.close()  # it was prepared, so its memory is freed and not reused
        with pytest.raises(DeviceError):
            prepared()
        assert device.recycler is not None and device.recycler.take(4000) != handle
        assert (first.numpy() == 1).all()

    def test_an_array_closed_during_a_launch_on_a_queue_is_not_recycled(
        self, device: Device, saxpy: Kernel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if not device.capabilities.queues:
            pytest.skip("this device has one queue")
        x, y = device.array(np.ones(3000, "f4")), device.recycled_empty((3000,), "f4")
        check_arguments = saxpy.check_arguments

        def check_and_close(args: tuple[Any, ...]) -> Any:
            checked = check_arguments(args)
            y.close()  # as another thread may
            return checked

        monkeypatch.setattr(saxpy, "check_arguments", check_and_close)
        queue = device.queue()
        saxpy.launch(groups(3000), (x, y, np.float32(2), np.int32(3000)), queue=queue)
        assert device.recycler is not None and device.recycler.take(12_000) is None
        queue.synchronize()

    def test_recycled_memory_is_freed_when_memory_runs_out(self, device: Device) -> None:
        with open_device(device.spec) as device:
            device.recycled_empty((4096,), "f4").close()
            recycler = device.recycler
            assert recycler is not None
            assert recycler.relieve(None) and not recycler.relieve(None)
            kept = device.recycled_empty((4096,), "f4")
        kept.close()  # after the device, which has freed it

    def test_the_recycler_drops_its_oldest_blocks(self, device: Device) -> None:
        for size in range(100, 200):
            device.recycled_empty((size,), "f4").close()
        kept = device.recycled_empty((5000,), "f4")
        handle = kept.handle
        kept.close()
        recycler = device.recycler
        assert recycler is not None and len(recycler.blocks) <= 64
        assert recycler.take(20_000) == handle
