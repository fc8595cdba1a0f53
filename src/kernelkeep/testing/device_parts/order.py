"""Fences, timers and queues: what happens after what, and how long it took."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ...devices.array import Array
from ...devices.base import Device, Kernel
from ...errors import DeviceError, Unsupported
from ...programs.portable import Buffer, PortableKernel, Scalar
from .common import DevicePart

__all__ = ["OrderTests"]

# A chain of dependent steps that no compiler shortens: its length is the launch's length.
_CHAIN = PortableKernel(
    "chain",
    params=[Buffer("x", "u4", "r"), Buffer("y", "u4", "w"), Scalar("steps", "i4")],
    body="""int i = kk_global_id(0);
            uint v = x[i];
            for (int k = 0; k < steps; k = k + 1) v = (v ^ (v >> 7)) * 1664525u + 1013904223u;
            y[i] = v;""",
    group=32,
)
_ITEMS = 64


def _chained(
    x: np.ndarray[tuple[int, ...], np.dtype[np.uint32]], steps: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
    v = x.copy()
    for _ in range(steps):
        v = (v ^ (v >> np.uint32(7))) * np.uint32(1664525) + np.uint32(1013904223)
    return v


class OrderTests(DevicePart):
    """Order is kept inside a queue, and between queues where it is asked for."""

    @pytest.fixture(scope="class")
    @classmethod
    def chain(cls, device: Device) -> Kernel:
        """The chain, launched once so that nothing is compiled while it is timed."""
        kernel = cls.build(device, _CHAIN)
        x = device.array(np.arange(_ITEMS, dtype="u4"))
        kernel.launch(2, (x, device.empty(_ITEMS, "u4"), 1))
        device.synchronize()
        return kernel

    @staticmethod
    def seconds(device: Device, chain: Kernel, steps: int) -> float:
        """Device time of one launch, the best of three."""
        x, y = device.array(np.arange(_ITEMS, dtype="u4")), device.empty(_ITEMS, "u4")
        best = float("inf")
        for _ in range(3):
            with device.timer() as timer:
                chain.launch(2, (x, y, steps))
            best = min(best, timer.seconds)
        return best

    @classmethod
    def long_steps(cls, device: Device, chain: Kernel, seconds: float = 0.1) -> int:
        """A number of steps that takes about so long."""
        steps = 1000
        while (took := cls.seconds(device, chain, steps)) < seconds and steps < 1 << 29:
            steps = int(steps * min(8.0, max(2.0, 1.2 * seconds / max(took, 1e-9))))
        return steps

    def test_fence(self, device: Device, chain: Kernel) -> None:
        steps = self.long_steps(device, chain)
        x, y = device.array(np.arange(_ITEMS, dtype="u4")), device.empty(_ITEMS, "u4")
        chain.launch(2, (x, y, steps))
        fence = device.fence()
        started = time.perf_counter()
        if not fence.wait(0.001):
            assert time.perf_counter() - started < 0.08, "a wait must end with its timeout"
        assert fence.wait() is True
        assert fence.done is True
        assert fence.wait(0) is True
        assert fence.wait(1.0) is True

    def test_fence_becomes_done_by_itself(self, device: Device, chain: Kernel) -> None:
        y = device.empty(_ITEMS, "u4")
        chain.launch(2, (device.array(np.arange(_ITEMS, dtype="u4")), y, 20_000))
        fence = device.fence()
        deadline = time.monotonic() + 30
        while not fence.done:
            assert time.monotonic() < deadline, "the fence never became done"
            time.sleep(0.001)
        assert (y.numpy() == _chained(np.arange(_ITEMS, dtype="u4"), 20_000)).all()

    def test_fence_of_an_idle_device(self, device: Device) -> None:
        device.synchronize()
        assert device.fence().wait(10.0) is True

    def test_timer_measures_the_work(self, device: Device, chain: Kernel) -> None:
        long_steps = self.long_steps(device, chain)
        short = self.seconds(device, chain, long_steps // 20)
        started = time.perf_counter()
        long = self.seconds(device, chain, long_steps)
        wall = (time.perf_counter() - started) / 3
        assert short > 0
        assert long > 4 * short, f"20 times the work took {long} s instead of {short} s"
        assert long < 1.2 * wall + 0.005, f"the device says {long} s, the clock on the wall {wall} s"

    def test_timer_before_its_end(self, device: Device) -> None:
        timer = device.timer()
        with pytest.raises(DeviceError):
            _ = timer.seconds

    def test_work_inside_a_timer_is_ordered(self, device: Device, chain: Kernel) -> None:
        x, y, z = device.array(np.arange(_ITEMS, dtype="u4")), device.empty(_ITEMS, "u4"), device.empty(_ITEMS, "u4")
        chain.launch(2, (x, y, 3000))
        with device.timer() as timer:
            chain.launch(2, (y, z, 2000))
        chain.launch(2, (z, y, 1000))
        assert timer.seconds > 0
        assert (y.numpy() == _chained(np.arange(_ITEMS, dtype="u4"), 6000)).all()

    def test_synchronize_waits(self, device: Device, chain: Kernel) -> None:
        y = device.empty(_ITEMS, "u4")
        chain.launch(2, (device.array(np.arange(_ITEMS, dtype="u4")), y, 20_000))
        fence = device.fence()
        device.synchronize()
        assert fence.done is True

    def test_two_queues(self, device: Device, chain: Kernel) -> None:
        if not device.capabilities.queues:
            with pytest.raises(Unsupported) as caught:
                device.queue()
            assert caught.value.capability == "queues"
            return
        steps = self.long_steps(device, chain, 0.02)
        x = np.arange(_ITEMS, dtype="u4")
        first, second = device.queue(), device.queue()
        arrays: list[Array] = [device.array(x), *(device.array(np.zeros(_ITEMS, "u4")) for _ in range(4))]
        device.synchronize()
        # Each hop runs in the other queue and reads what the slow one before it writes: without wait_for it reads 0.
        for hop in range(4):
            here, there = (first, second) if hop % 2 == 0 else (second, first)
            chain.launch(2, (arrays[hop], arrays[hop + 1], steps), queue=here)
            there.wait_for(here.fence())
        first.synchronize()
        second.synchronize()
        y = device.array(x)
        for _ in range(4):
            chain.launch(2, (y, y, steps))
        np.testing.assert_array_equal(arrays[4].numpy(), y.numpy())

    def test_queue_and_device_wait_for_each_other(self, device: Device, chain: Kernel) -> None:
        if not device.capabilities.queues:
            pytest.skip("this device has one queue")
        x, y, z = device.array(np.arange(_ITEMS, dtype="u4")), device.empty(_ITEMS, "u4"), device.empty(_ITEMS, "u4")
        queue = device.queue()
        chain.launch(2, (x, y, 5000))
        queue.wait_for(device.fence())
        chain.launch(2, (y, z, 5000), queue=queue)
        assert queue.fence().wait() is True
        assert (z.numpy() == _chained(np.arange(_ITEMS, dtype="u4"), 10_000)).all()
