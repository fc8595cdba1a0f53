"""Capabilities, and what is closed stays closed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ...devices.base import Capabilities, Device
from ...devices.registry import open_device
from ...errors import DeviceError, Unsupported
from .common import SAXPY, DevicePart

__all__ = ["LifeTests"]


class LifeTests(DevicePart):
    """A device, its programs and its arrays end cleanly, in any order."""

    def test_capabilities_are_plausible(self, device: Device) -> None:
        has = device.capabilities
        assert isinstance(has, Capabilities)
        assert has.max_group_items >= 128
        assert min(has.max_group) >= 1
        assert has.max_group[0] >= 128
        assert min(has.max_grid) >= 65535
        assert has.shared_bytes >= 16384
        for name in ("cooperative", "float64", "queues"):
            if getattr(has, name):
                has.require(name)
            else:
                with pytest.raises(Unsupported, match=name) as caught:
                    has.require(name)
                assert caught.value.capability == name

    def test_memory_info_is_plausible(self, device: Device) -> None:
        info = device.memory_info()
        assert info.total_bytes > 1 << 20
        assert info.free_bytes is None or 0 < info.free_bytes <= info.total_bytes

    def test_kernels_of_a_closed_program_raise(self, device: Device) -> None:
        program = device.load(device.compile(SAXPY.source(device)))
        kernel = program.kernel()
        x, y = device.array(np.ones(4, "f4")), device.array(np.zeros(4, "f4"))
        kernel.launch(1, (x, y, 2.0, 4))
        program.close()
        program.close()
        assert program.closed
        with pytest.raises(DeviceError, match="closed"):
            kernel.launch(1, (x, y, 2.0, 4))
        for name in (None, "saxpy"):
            with pytest.raises(DeviceError, match="closed"):
                program.kernel(name)
        assert (y.numpy() == 2).all(), "what was launched before the close still counts"

    def test_a_kernel_keeps_its_program_alive(self, device: Device) -> None:
        kernel = self.build(device, SAXPY)  # nothing else holds the program
        self.check_saxpy(device, kernel)

    def test_a_closed_device_raises(self, device: Device) -> None:
        other = open_device(device.spec)
        source = SAXPY.source(other)
        binary = other.compile(source)
        program = other.load(binary)
        kernel, array = program.kernel(), other.array(np.ones(4, "f4"))
        kernel.launch(1, (array, array, 1.0, 4))
        other.close()
        other.close()
        assert other.closed
        assert program.closed
        assert "closed" in repr(other)
        uses: list[Callable[[], object]] = [
            lambda: other.compile(source), lambda: other.load(binary), lambda: other.empty(4),
            lambda: other.array([1.0]), lambda: other.pinned_empty(4), other.memory_info, other.synchronize,
            other.fence, other.timer, other.queue, array.numpy, lambda: array.copy_from(np.ones(4, "f4")),
            lambda: kernel.launch(1, (array, array, 1.0, 4)), program.kernel, lambda: program.kernel("saxpy"),
        ]  # fmt: skip
        for use in uses:
            with pytest.raises(DeviceError, match="closed"):
                use()
        array.close()
        self.check_saxpy(device, self.build(device, SAXPY))

    def test_a_with_block_closes_the_device(self, device: Device) -> None:
        with open_device(device.spec) as other:
            self.check_saxpy(other, self.build(other, SAXPY))
        assert other.closed
        assert not device.closed

    def test_an_array_may_outlive_its_device(self, device: Device) -> None:
        with open_device(device.spec) as other:
            array = other.array(np.ones(1001, "f4"))
        del other
        del array
        self.check_saxpy(device, self.build(device, SAXPY))

    def test_a_device_opens_and_closes_many_times(self, device: Device) -> None:
        for _ in range(10):
            with open_device(device.spec) as other:
                assert other.fingerprint == device.fingerprint
                assert other.array([1.0, 2.0]).numpy().tolist() == [1.0, 2.0]
