"""Prepared launches that are called again and again: a backend may launch those in another way, and nobody may notice."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from ...devices.base import Device, Kernel
from ...errors import DeviceError
from ..device_parts.common import together
from .common import AFFINE, GRID, HOST, ITEMS, DispatchPart

__all__ = ["CalledOftenTests"]

OFTEN = 50  # calls, more than any backend waits for


class CalledOftenTests(DispatchPart):
    """Each call is one launch, in order, with the arguments of that moment."""

    def test_calls_stay_in_order_with_other_launches(self, device: Device, affine: Kernel) -> None:
        y, expected = device.array(HOST), HOST
        prepared = affine.prepare(GRID, (y, 3, 1, ITEMS))
        for turn in range(4 * OFTEN):
            prepared()
            expected = np.uint32(3) * expected + np.uint32(1)
            if turn % 5 == 0:
                affine.launch(GRID, (y, 5, turn, ITEMS))
                expected = np.uint32(5) * expected + np.uint32(turn)
        np.testing.assert_array_equal(y.numpy(), expected)

    @pytest.mark.parametrize("calls", [1, 2, 15, 16, 17, OFTEN])
    def test_an_update_counts_from_the_next_call_on(self, device: Device, affine: Kernel, calls: int) -> None:
        arrays, expected = [device.array(HOST), device.array(HOST)], [HOST, HOST]
        prepared = affine.prepare(GRID, (arrays[0], 1, 0, ITEMS))
        for turn in range(6):
            prepared.update("y", arrays[turn % 2])
            prepared.update("a", turn + 2)
            prepared.update("b", turn)
            for _ in range(calls):
                prepared()
                expected[turn % 2] = np.uint32(turn + 2) * expected[turn % 2] + np.uint32(turn)
        for array, values in zip(arrays, expected, strict=True):
            np.testing.assert_array_equal(array.numpy(), values)

    def test_a_closed_array_revokes_and_another_mends(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        prepared = saxpy.prepare(GRID, (x, y, 1.0, ITEMS))
        for _ in range(OFTEN):
            prepared()
        x.close()
        for _ in range(2):
            with pytest.raises(DeviceError, match="closed"):
                prepared()
        prepared.update("x", device.array(np.full(ITEMS, 2, "f4")))
        for _ in range(OFTEN):
            prepared()
        assert (y.numpy() == 3 * OFTEN).all()

    def test_one_of_two_closed_arrays_replaced_does_not_mend(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        prepared = saxpy.prepare(GRID, (x, y, 1.0, ITEMS))
        for _ in range(OFTEN):
            prepared()
        x.close()
        y.close()
        prepared.update("x", device.array(np.full(ITEMS, 2, "f4")))
        with pytest.raises(DeviceError, match="closed"):
            prepared()
        y = device.zeros(ITEMS, "f4")
        prepared.update("y", y)
        prepared()
        assert (y.numpy() == 2).all()

    def test_a_closed_program_revokes(self, device: Device) -> None:
        kernel = self.build(device, AFFINE)
        y = device.array(HOST)
        prepared = kernel.prepare(GRID, (y, 1, 1, ITEMS))
        for _ in range(OFTEN):
            prepared()
        kernel.program.close()
        with pytest.raises(DeviceError, match="closed"):
            prepared()
        np.testing.assert_array_equal(y.numpy(), HOST + np.uint32(OFTEN))

    @pytest.mark.parametrize("before", [0, 10, OFTEN])
    def test_an_array_may_be_closed_while_another_thread_calls(
        self, device: Device, saxpy: Kernel, before: int
    ) -> None:
        x, y = self.ones_and_zeros(device)
        prepared = saxpy.prepare(GRID, (x, y, 1.0, ITEMS))
        called, refused = threading.Event(), []

        def call_until_refused() -> None:
            try:
                for turn in range(1_000_000):
                    if turn >= before:
                        called.set()
                    prepared()
            except DeviceError as error:
                refused.append(str(error))

        thread = threading.Thread(target=call_until_refused)
        thread.start()
        assert called.wait(30)
        x.close()
        thread.join(60)
        assert len(refused) == 1 and "closed" in refused[0]
        sums = y.numpy()
        assert (sums == sums[0]).all(), "no launch read memory that was gone"

    def test_threads_call_one_launch(self, device: Device, affine: Kernel) -> None:
        y = device.array(HOST)
        prepared = affine.prepare(GRID, (y, 1, 3, ITEMS))
        for _ in range(OFTEN):
            prepared()

        def work(number: int) -> None:
            for _ in range(2 * OFTEN):
                prepared()

        together(work)
        np.testing.assert_array_equal(y.numpy(), HOST + np.uint32((OFTEN + 16 * 2 * OFTEN) * 3))

    def test_calls_on_a_queue(self, device: Device, affine: Kernel) -> None:
        if not device.capabilities.queues:
            pytest.skip("this device has one queue")
        y, expected = device.array(HOST), HOST
        queue = device.queue()
        device.synchronize()
        prepared = affine.prepare(GRID, (y, 3, 1, ITEMS), queue=queue)
        for _ in range(2 * OFTEN):
            prepared()
            expected = np.uint32(3) * expected + np.uint32(1)
        queue.synchronize()
        np.testing.assert_array_equal(y.numpy(), expected)

    def test_more_launches_than_any_backend_keeps_ready(self, device: Device, affine: Kernel) -> None:
        arrays = [device.array(HOST) for _ in range(4)]
        prepared = [affine.prepare(GRID, (arrays[k % 4], 1, k, ITEMS)) for k in range(100)]
        for _ in range(OFTEN):
            for one in prepared:
                one()
        for k, array in enumerate(arrays):
            np.testing.assert_array_equal(array.numpy(), HOST + np.uint32(OFTEN * sum(range(k, 100, 4))))

    def test_dropped_launches_are_collected(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        gone = []
        for _ in range(10):
            prepared = saxpy.prepare(GRID, (x, y, 1.0, ITEMS))
            for _ in range(OFTEN):
                prepared()
            gone.append(weakref.ref(prepared))
        del prepared
        gc.collect()
        assert [one() for one in gone] == [None] * 10
        assert (y.numpy() == 10 * OFTEN).all()
