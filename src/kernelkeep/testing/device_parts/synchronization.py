"""Fences, timers and queues: what happens after what, and how long it took."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from ...devices.base import Device, Kernel
from ...devices.registry import open_device
from ...errors import ArgumentError, DeviceError, Unsupported
from ...programs.portable import Buffer, PortableKernel, Scalar
from .common import DevicePart, together

__all__ = ["SynchronizationTests"]

# A chain of dependent steps that no compiler shortens. Longer work is more launches, not more steps: llvmpipe leaves
# every loop, without a word, once a work-item has gone round 65,535 times.
_CHAIN = PortableKernel(
    "chain",
    params=[Buffer("y", "u4", "rw"), Scalar("steps", "i4")],
    body="""int i = kk_global_id(0);
            uint v = y[i];
            for (int k = 0; k < steps; k = k + 1) v = (v ^ (v >> 7)) * 1664525u + 1013904223u;
            y[i] = v;""",
    group=32,
)
_ITEMS = 64
_STEPS = 10_000  # of a launch
_SLOW_STEPS = 200  # on a device that interprets
_HOST = np.arange(_ITEMS, dtype="u4")


def _chained(steps: int) -> np.ndarray[Any, Any]:
    v = _HOST
    for _ in range(steps):
        v = (v ^ (v >> np.uint32(7))) * np.uint32(1664525) + np.uint32(1013904223)
    return v


def _steps(device: Device) -> int:
    """How long a launch is where it is timed: on any device many launches take less than a second."""
    return _SLOW_STEPS if device.info.is_interpreter else _STEPS


class SynchronizationTests(DevicePart):
    """Order is kept inside a queue, and between queues where it is asked for."""

    @pytest.fixture(scope="class")
    @classmethod
    def chain(cls, device: Device) -> Kernel:
        """The chain, launched once so that nothing is compiled while it is timed."""
        kernel = cls.build(device, _CHAIN)
        kernel.launch(2, (device.array(_HOST), 1))
        device.synchronize()
        return kernel

    @staticmethod
    def seconds(device: Device, chain: Kernel, launches: int) -> float:
        """Device time of so many launches, the best of three."""
        y, steps = device.array(_HOST), _steps(device)
        best = float("inf")
        for _ in range(3):
            with device.timer() as timer:
                for _ in range(launches):
                    chain.launch(2, (y, steps))
            best = min(best, timer.seconds)
        return best

    @classmethod
    def launches(cls, device: Device, chain: Kernel, seconds: float = 0.1) -> int:
        """A number of launches that takes at least so long."""
        count = 20
        while cls.seconds(device, chain, count) < seconds:
            assert count < 1 << 16, "the timer does not see the work"
            count *= 2
        return count

    def test_a_fence_is_done_after_the_work_before_it(self, device: Device, chain: Kernel) -> None:
        y = device.array(_HOST)
        count = self.launches(device, chain)
        for _ in range(count):
            chain.launch(2, (y, _steps(device)))
        fence = device.fence()
        started = time.perf_counter()
        if not fence.wait(0.001):
            assert time.perf_counter() - started < 0.08, "a wait must end with its timeout"
        assert fence.wait() is True
        assert fence.done is True
        assert fence.wait(0) is True
        assert fence.wait(1.0) is True

    def test_fence_becomes_done_by_itself(self, device: Device, chain: Kernel) -> None:
        y = device.array(_HOST)
        chain.launch(2, (y, _STEPS))
        fence = device.fence()
        deadline = time.monotonic() + 30
        while not fence.done:
            assert time.monotonic() < deadline, "the fence never became done"
            time.sleep(0.001)
        assert (y.numpy() == _chained(_STEPS)).all()

    def test_the_fence_of_an_idle_device_is_done(self, device: Device) -> None:
        device.synchronize()
        assert device.fence().wait(10.0) is True

    def test_timer_measures_the_work(self, device: Device, chain: Kernel) -> None:
        count = self.launches(device, chain)
        short = self.seconds(device, chain, count // 20)
        started = time.perf_counter()
        long = self.seconds(device, chain, count)
        wall = (time.perf_counter() - started) / 3
        assert short > 0
        assert long > 4 * short, f"20 times the work took {long} s instead of {short} s"
        assert long < 1.2 * wall + 0.005, f"the device says {long} s, the clock on the wall {wall} s"

    def test_a_timer_read_before_its_end_raises(self, device: Device) -> None:
        timer = device.timer()
        with pytest.raises(DeviceError):
            _ = timer.seconds

    def test_work_inside_a_timer_is_ordered(self, device: Device, chain: Kernel) -> None:
        y = device.array(_HOST)
        chain.launch(2, (y, 3000))
        with device.timer() as timer:
            chain.launch(2, (y, 2000))
        chain.launch(2, (y, 1000))
        assert timer.seconds > 0
        assert (y.numpy() == _chained(6000)).all()

    def test_threads_read_what_they_launched_while_another_one_times(self, device: Device, chain: Kernel) -> None:
        steps = 200 if device.info.is_interpreter else 2000
        expected = _chained(steps)

        def work(number: int) -> None:
            y = device.array(_HOST)
            for _ in range(100):
                if number == 0:
                    with device.timer():
                        chain.launch(2, (y, steps))
                else:
                    y = device.array(_HOST)
                    chain.launch(2, (y, steps))
                    assert (y.numpy() == expected).all()

        together(work, 4)

    def test_work_of_another_thread_inside_a_timer_is_ordered(self, device: Device, chain: Kernel) -> None:
        inside, launched, seen = threading.Event(), threading.Event(), []
        y = device.array(_HOST)

        def other() -> None:
            inside.wait(30)
            for _ in range(20):
                chain.launch(2, (y, 3000))
            launched.set()
            seen.append(y.numpy())  # inside the timer's block, or after it

        thread = threading.Thread(target=other)
        thread.start()
        with device.timer():
            inside.set()
            launched.wait(30)
        thread.join(60)
        assert (seen[0] == _chained(60_000)).all()

    def test_timers_of_two_threads_do_not_mix(self, device: Device, chain: Kernel) -> None:
        def work(number: int) -> bool:
            y = device.array(_HOST)
            for _ in range(10):
                with device.timer() as timer:
                    chain.launch(2, (y, 300))
                assert timer.seconds > 0
            return bool((y.numpy() == _chained(3000)).all())

        assert together(work, 4) == [True] * 4

    def test_synchronize_waits(self, device: Device, chain: Kernel) -> None:
        chain.launch(2, (device.array(_HOST), _STEPS))
        fence = device.fence()
        device.synchronize()
        assert fence.done is True

    def test_queues_wait_for_each_other(self, device: Device, chain: Kernel) -> None:
        if not device.capabilities.queues:
            with pytest.raises(Unsupported) as caught:
                device.queue()
            assert caught.value.capability == "queues"
            return
        y, expected = device.array(_HOST), device.array(_HOST)
        count = self.launches(device, chain, 0.01)
        first, second = device.queue(), device.queue()
        device.synchronize()
        # Each hop runs in the other queue and continues what the one before it wrote: without wait_for, steps are lost.
        for hop in range(6):
            here, there = (first, second) if hop % 2 == 0 else (second, first)
            for _ in range(count):
                chain.launch(2, (y, _STEPS), queue=here)
            there.wait_for(here.fence())
        first.synchronize()
        second.synchronize()
        for _ in range(6 * count):
            chain.launch(2, (expected, _STEPS))
        np.testing.assert_array_equal(y.numpy(), expected.numpy())

    def test_a_queue_waits_for_a_fence_of_the_device(self, device: Device, chain: Kernel) -> None:
        if not device.capabilities.queues:
            pytest.skip("this device has one queue")
        y, queue = device.array(_HOST), device.queue()
        chain.launch(2, (y, 5000))
        queue.wait_for(device.fence())
        chain.launch(2, (y, 5000), queue=queue)
        assert queue.fence().wait() is True
        assert (y.numpy() == _chained(10_000)).all()

    def test_a_queue_of_another_device_is_rejected(self, device: Device, chain: Kernel) -> None:
        if not device.capabilities.queues:
            pytest.skip("this device has one queue")
        y = device.array(_HOST)
        with open_device(device.spec) as other:
            theirs = other.queue()
            with pytest.raises(ArgumentError, match="queue"):
                chain.launch(2, (y, 1), queue=theirs)
        assert (y.numpy() == _HOST).all()
