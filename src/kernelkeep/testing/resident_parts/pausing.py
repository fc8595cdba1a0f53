"""Pausing at a task boundary, and going on."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...errors import DeviceError
from ...resident.resident import Resident
from ..device_parts.common import SAXPY, together
from .common import TIMEOUT, ResidentPart

__all__ = ["PausingTests"]


class PausingTests(ResidentPart):
    def test_tasks_wait_while_the_grid_is_paused(self, resident: Resident) -> None:
        resident.submit("count", 0, 1).result(TIMEOUT)
        with resident.paused() as same:
            assert same is resident
            futures = [resident.submit("count", 0, 1) for _ in range(10)]
            assert resident.arrays["total"].numpy()[0] == 1
            assert not any(future.done() for future in futures)
        for future in futures:
            future.result(TIMEOUT)
        assert self.read(resident, "total")[0] == 11

    def test_arrays_may_be_changed_while_the_grid_is_paused(self, resident: Resident) -> None:
        with resident.paused():
            resident.arrays["x"].copy_from(np.full(256, 0.25, "f4"))
        assert resident.submit("sum", 256).result(TIMEOUT) == 64

    def test_pausing_is_repeated_and_nested(self, resident: Resident) -> None:
        with resident.paused(), resident.paused():
            future = resident.submit("twice", 2)
        assert future.result(TIMEOUT) == 4
        resident.pause()
        resident.pause()
        with resident.paused():
            waiting = resident.submit("twice", 3)
        assert not waiting.done()
        resident.resume()
        resident.resume()
        assert waiting.result(TIMEOUT) == 6

    def test_whoever_paused_it_and_waits_is_told(self, cache: ProgramCache) -> None:
        with self.opened(cache, capacity=8, blocks=1) as resident, resident.paused():
            future = resident.submit("twice", 2)
            with pytest.raises(DeviceError, match=r"this thread paused the resident grid.*resume\(\)"):
                future.result(TIMEOUT)
            for _ in range(7):
                resident.submit("nothing")
            with pytest.raises(DeviceError, match=r"this thread paused the resident grid.*resume\(\)"):
                resident.submit("nothing")  # the ring is full

    def test_close_runs_what_waits_in_a_paused_grid(self, cache: ProgramCache) -> None:
        with self.make(cache) as resident:
            resident.pause()
            future = resident.submit_many("twice", [1, 2, 3])
        assert future.result(TIMEOUT).tolist() == [2, 4, 6]
        resident = self.make(cache)
        resident.pause()
        launches = resident.live_facts().counts["launches"]
        resident.close()
        assert resident.live_facts().counts["launches"] == launches  # nothing waited

    def test_nothing_is_lost_or_done_twice_over_many_pauses(self, resident: Resident) -> None:
        over = threading.Event()

        def work(number: int) -> None:
            if number:
                try:
                    for _ in range(40):
                        resident.submit("note", number, 1)
                        resident.submit("count", number, 1).result(TIMEOUT)
                finally:
                    over.set()
                return
            while not over.is_set():
                with resident.paused():
                    pass
                resident.submit("nothing").result(TIMEOUT)  # a grid that is paused at once again does nothing

        together(work, 3)
        assert self.read(resident, "total")[1:3].tolist() == [40, 40]
        assert self.read(resident, "tail")[1:3].tolist() == [40, 40]

    def test_a_grid_goes_on_from_anywhere_in_the_ring(self, cache: ProgramCache) -> None:
        """Blocks hold fewer records than the ring, and each launch begins in the middle of them."""
        with self.opened(cache, blocks=1) as resident:
            sent = 0
            for count in (1, 30, 127, 128, 129, 257, 511, 2):
                with resident.paused():
                    future = resident.submit_many("twice", np.arange(count))
                assert future.result(TIMEOUT).tolist() == [2 * k for k in range(count)]
                assert [resident.submit("twice", k).result(TIMEOUT) for k in range(3)] == [0, 2, 4]
                sent += count + 3
            assert resident.done == (sent,)

    def test_other_kernels_run_beside_it(self, resident: Resident, device: Device) -> None:
        self.check_saxpy(device, self.build(device, SAXPY))
        assert resident.submit("twice", 8).result(TIMEOUT) == 16
        closed = device.array(np.zeros(1000, "f4"))
        closed.close()
        assert resident.submit("twice", 9).result(TIMEOUT) == 18
