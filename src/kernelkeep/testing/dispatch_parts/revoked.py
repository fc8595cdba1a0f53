"""Prepared launches whose array, program or device is closed: refused, with the reason, and mended where they can be."""

from __future__ import annotations

import contextlib
import gc
import weakref

import numpy as np
import pytest

from ...devices.base import Device, Kernel
from ...devices.registry import open_device
from ...errors import DeviceError
from .common import AFFINE, GRID, HOST, ITEMS, DispatchPart

__all__ = ["RevokedTests"]


class RevokedTests(DispatchPart):
    """Nothing is ever launched on memory or code that is gone."""

    def test_a_launch_runs_again_once_a_closed_array_is_replaced(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        prepared, bystander = (saxpy.prepare(GRID, (array, y, 2.0, ITEMS)) for array in (x, device.array(x)))
        prepared()
        x.close()
        for _ in range(2):
            with pytest.raises(DeviceError, match=rf"saxpy on {device.spec} cannot run: an array .* is closed"):
                prepared()
        bystander()
        prepared.update("a", 3.0)  # replacing another argument does not help
        with pytest.raises(DeviceError, match="closed"):
            prepared()
        assert (y.numpy() == 4).all()
        prepared.update("x", device.array(np.full(ITEMS, 10, "f4")))
        prepared()
        assert (y.numpy() == 34).all()

    def test_closing_an_array_in_two_places_revokes_until_both_are_replaced(
        self, device: Device, saxpy: Kernel
    ) -> None:
        both, y = self.ones_and_zeros(device)
        prepared = saxpy.prepare(GRID, (both, both, 2.0, ITEMS))
        prepared()
        both.close()
        prepared.update("x", device.array(np.ones(ITEMS, "f4")))
        with pytest.raises(DeviceError, match="closed"):
            prepared()
        prepared.update("y", y)
        prepared()
        assert (y.numpy() == 2).all()

    def test_a_replaced_array_may_be_closed(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        other = device.array(np.full(ITEMS, 3, "f4"))
        prepared = saxpy.prepare(GRID, (x, y, 2.0, ITEMS))
        prepared.update("x", other)
        x.close()
        prepared()
        assert (y.numpy() == 6).all()

    def test_closing_a_replaced_array_that_is_still_in_another_place_revokes(
        self, device: Device, saxpy: Kernel
    ) -> None:
        both, x = self.ones_and_zeros(device)
        prepared = saxpy.prepare(GRID, (both, both, 2.0, ITEMS))
        prepared.update("x", x)  # `both` is still y
        both.close()
        with pytest.raises(DeviceError, match="closed"):
            prepared()

    def test_launches_made_before_a_close_still_run(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        prepared = saxpy.prepare(GRID, (x, y, 2.0, ITEMS))
        for _ in range(10):
            prepared()
        x.close()
        assert (y.numpy() == 20).all()

    def test_a_closed_program_revokes_its_prepared_launches(self, device: Device) -> None:
        kernel = self.build(device, AFFINE)
        y = device.array(HOST)
        prepared = kernel.prepare(GRID, (y, 2, 1, ITEMS))
        prepared()
        kernel.program.close()
        for value in (3, 4):
            with pytest.raises(DeviceError, match="program of kernel affine is closed"):
                prepared()
            with contextlib.suppress(DeviceError):  # it may raise now or at the call
                prepared.update("a", value)
        with pytest.raises(DeviceError, match="closed"):
            kernel.prepare(GRID, (y, 2, 1, ITEMS))
        np.testing.assert_array_equal(y.numpy(), 2 * HOST + 1)

    def test_replacing_a_closed_array_does_not_revive_a_closed_program(self, device: Device) -> None:
        kernel = self.build(device, AFFINE)
        y = device.array(HOST)
        prepared = kernel.prepare(GRID, (y, 2, 1, ITEMS))
        y.close()
        kernel.program.close()
        with contextlib.suppress(DeviceError):
            prepared.update("y", device.array(HOST))
        with pytest.raises(DeviceError, match="closed"):
            prepared()

    def test_a_closed_device_revokes_its_prepared_launches(self, device: Device) -> None:
        with open_device(device.spec) as other:
            y = other.array(HOST)
            prepared = self.build(other, AFFINE).prepare(GRID, (y, 2, 1, ITEMS))
            prepared()
        with pytest.raises(DeviceError, match="closed"):
            prepared()

    def test_a_prepared_launch_keeps_its_program_alive(self, device: Device) -> None:
        y = device.array(HOST)
        prepared = self.build(device, AFFINE).prepare(GRID, (y, 2, 1, ITEMS))  # nothing else holds the program
        gc.collect()
        prepared()
        np.testing.assert_array_equal(y.numpy(), 2 * HOST + 1)

    def test_a_dropped_prepared_launch_is_collected(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        gone = []
        for _ in range(100):
            prepared = saxpy.prepare(GRID, (x, y, 2.0, ITEMS))
            prepared()
            gone.append(weakref.ref(prepared))
        del prepared
        gc.collect()
        assert [one() for one in gone] == [None] * 100
        x.close()  # has no observer left
        assert (y.numpy() == 200).all()
