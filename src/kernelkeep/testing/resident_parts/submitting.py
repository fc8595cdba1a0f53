"""Single tasks: their arguments, their results, their futures."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...errors import Unsupported
from ...programs.portable import Buffer, PortableKernel, Scalar
from ...resident.resident import Resident
from ...resident.task import Task
from .common import TIMEOUT, ResidentPart

__all__ = ["SubmittingTests"]

VALUES: dict[str, list[Any]] = {
    "i1": [-128, 127, -1], "u1": [0, 255], "i2": [-32768, 32767], "u2": [65535],
    "i4": [-(2**31), 2**31 - 1, -1], "u4": [0, 2**32 - 1], "i8": [-(2**63), 2**63 - 1, 1 << 40], "u8": [2**64 - 1, 1 << 33],
    "f4": [0.5, -0.0, float("inf"), 3.4028234663852886e38], "f8": [0.1, -1e300],
}  # fmt: skip


class SubmittingTests(ResidentPart):
    def test_a_task_runs_and_gives_its_result(self, resident: Resident) -> None:
        assert resident.submit("twice", 21).result(TIMEOUT) == 42
        assert resident.submit("fill", 3, 5, 1.5).result(TIMEOUT) is None
        assert resident.submit("sum", 256).result(TIMEOUT) == 7.5
        assert resident.submit("nothing").result(TIMEOUT) is None
        assert self.read(resident, "x")[2:9].tolist() == [0, 1.5, 1.5, 1.5, 1.5, 1.5, 0]

    def test_a_result_that_no_work_item_gave_is_0(self, resident: Resident) -> None:
        assert [resident.submit("tell", v).result(TIMEOUT) for v in (7, 0, 9, 0)] == [7, 0, 9, 0]

    @pytest.mark.parametrize("dtype", VALUES)
    def test_arguments_and_results_of_each_type(self, cache: ProgramCache, device: Device, dtype: str) -> None:
        task = Task("if (kk_local_id(0) == 0) kk_result(v);", args={"v": dtype}, result=dtype)
        try:
            PortableKernel("probe", [Buffer("y", dtype), Scalar("v", dtype)], "y[0] = v;").check_supported(device)
        except Unsupported as error:
            pytest.skip(f"{device.spec}: {error}")
        with self.opened(cache, {"echo": task}, {}) as resident:
            for value in VALUES[dtype]:
                found = resident.submit("echo", value).result(TIMEOUT)
                assert np.array(found, dtype).tobytes() == np.array(value, dtype).tobytes()

    def test_kernels_of_both_front_ends_are_tasks(self, cache: ProgramCache) -> None:
        kernel = PortableKernel(
            "scale",
            [Buffer("x", "f4", "rw"), Buffer("result", "i4", "w"), Scalar("by", "f4")],
            "int i = kk_local_id(0); x[i] = by * x[i]; if (i == 0) result[0] = kk_group_size(0);",
            group=64,
        )
        with self.opened(cache, {"scale": kernel}, {"x": np.arange(64, dtype="f4")}) as resident:
            assert resident.threads == 64
            assert resident.submit("scale", 2.0).result(TIMEOUT) == 64
            assert self.read(resident, "x")[3] == 6

    def test_a_future_tells_that_it_is_done(self, resident: Resident) -> None:
        future = resident.submit("twice", 4)
        called = threading.Event()
        future.add_done_callback(lambda one: called.set())
        assert future.result(TIMEOUT) == 8
        assert future.done()
        assert future.exception() is None
        assert not future.cancel()
        assert called.wait(TIMEOUT)
        assert future.result() == 8

    def test_results_stay_while_the_ring_goes_round(self, cache: ProgramCache) -> None:
        with self.opened(cache, capacity=8) as resident:
            futures = [resident.submit("twice", number) for number in range(60)]
            assert [future.result(TIMEOUT) for future in futures] == [2 * number for number in range(60)]

    def test_tasks_are_awaited(self, resident: Resident) -> None:
        async def work() -> list[Any]:
            return await asyncio.wait_for(asyncio.gather(*(resident.run("twice", v) for v in range(20))), TIMEOUT)

        assert asyncio.run(work()) == [2 * v for v in range(20)]

    def test_a_full_ring_makes_coroutines_wait_in_their_order(self, cache: ProgramCache) -> None:
        async def work(resident: Resident) -> int:
            runs = [asyncio.create_task(resident.run("note", 0, number)) for number in range(40)]
            for _ in range(5):
                await asyncio.sleep(0.001)
            done = sum(resident.done)  # none, unless the loop stood still until the timer
            resident.resume()
            await asyncio.wait_for(asyncio.gather(*runs), TIMEOUT)
            return done

        with self.opened(cache, capacity=8, blocks=1) as resident:
            other = threading.Thread(target=resident.pause)
            other.start()
            other.join()
            timer = threading.Timer(5, resident.resume)
            timer.start()
            assert asyncio.run(work(resident)) == 0
            timer.cancel()
            assert self.read(resident, "log")[:40].tolist() == list(range(40))

    def test_a_coroutine_that_waits_for_room_is_told_what_is_wrong(self, cache: ProgramCache) -> None:
        async def work(resident: Resident) -> list[Any]:
            return await asyncio.gather(*(resident.run("nothing") for _ in range(12)), return_exceptions=True)

        with self.opened(cache, capacity=8, blocks=1) as resident:
            resident.pause()
            assert {str(one)[:41] for one in asyncio.run(work(resident))} == {
                "this thread paused the resident grid, so "
            }

    def test_a_full_ring_makes_submit_wait(self, cache: ProgramCache) -> None:
        with self.opened(cache, capacity=8, blocks=1) as resident:
            resident.pause()
            submitted: list[int] = []

            def produce() -> None:
                for number in range(40):
                    resident.submit("count", 1, 1)
                    submitted.append(number)

            thread = threading.Thread(target=produce)
            thread.start()
            while len(submitted) < 8:
                thread.join(0.001)
            thread.join(0.05)
            assert len(submitted) == 8
            resident.resume()
            thread.join(TIMEOUT)
            assert len(submitted) == 40
            assert self.read(resident, "total")[1] == 40

    def test_arrays_of_the_grid_live_as_long_as_it_does(self, cache: ProgramCache, device: Device) -> None:
        array = device.array(np.zeros(64, "i4"))
        alive = weakref.ref(array)
        with self.opened(cache, arrays={**self.arrays(), "total": array}) as resident:
            del array
            gc.collect()
            resident.submit("count", 5, 3).result(TIMEOUT)
            assert self.read(resident, "total")[5] == 3
        del resident
        deadline = time.monotonic() + TIMEOUT
        while alive() is not None and time.monotonic() < deadline:
            gc.collect()
        assert alive() is None

    def test_the_repr_says_what_runs_where(self, resident: Resident, device: Device) -> None:
        assert device.spec in repr(resident)
        assert ("emulated" in repr(resident)) is self.emulated
        assert resident.blocks == self.blocks
        assert "twice" in resident.tasks
