"""Resident grids on every backend: on CUDA the grid itself, elsewhere the emulated one."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.resident.arguments import pack_record
from kernelkeep.testing import ResidentTests
from kernelkeep.testing.device_parts.common import together
from kernelkeep.testing.executor_parts.common import eventually
from kernelkeep.testing.resident_parts.common import TASKS, TIMEOUT, ResidentPart
from kernelkeep.testing.resident_parts.pausing import PausingTests
from kernelkeep.testing.resident_parts.wide import WideTests


@pytest.mark.opencl
class TestOpenCL(ResidentTests):
    backend = "opencl"


@pytest.mark.opengl
class TestOpenGL(WideTests, PausingTests):
    backend = "opengl"
    blocks = 3


class TestReference(WideTests):
    backend = "reference"


FUNCTION = """
__device__ int one_more(int v) { return v + 1; }
__device__ void NAME(int* total, int at, int* result) {
    __shared__ int all[64];
    all[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) {
        atomicAdd(&total[at], one_more(all[5]));
        if (blockIdx.x == gridDim.x - 1) *result = blockDim.x * 100 + gridDim.x * 10 + blockIdx.x;
    }
}
"""


@pytest.mark.cuda
class TestCUDA(ResidentTests):
    backend = "cuda"
    emulated = False
    tasks_each = 500

    def test_the_device_knows_of_a_grid_until_it_is_paused_or_ends(self, cache: kk.ProgramCache) -> None:
        residents = cast(Any, cache.device).residents
        before = list(residents.grids)
        with self.opened(cache) as resident:
            resident.resume()
            assert len(residents.grids) == len(before) + 1
            with resident.paused():
                assert residents.grids == before
            resident.resume()
        assert residents.grids == before

    @pytest.mark.parametrize("make", [kk.Resident, kk.Resident.emulated], ids=["device", "emulated"])
    def test_functions_in_cuda_c_are_tasks(self, cache: kk.ProgramCache, make: Any) -> None:
        tasks = {
            "one": kk.Source(FUNCTION.replace("NAME", "one"), "one", language="cuda"),
            "all": kk.Task(kk.Source(FUNCTION.replace("NAME", "all"), "all", language="cuda"), whole_grid=True),
            "count": TASKS["count"],
        }
        with make(cache, tasks, {"total": np.zeros(8, "i4")}, blocks=2, threads=64) as resident:
            assert resident.submit("one", 3).result(60) == 6410
            assert resident.submit("all", 4).result(60) == 6421
            resident.submit("count", 5, 1).result(60)
            assert self.read(resident, "total").tolist() == [0, 0, 0, 6, 12, 1, 0, 0]

    def test_a_grid_whose_array_was_closed_is_not_launched_again(self, cache: kk.ProgramCache) -> None:
        with self.opened(cache, blocks=1) as resident:
            resident.pause()
            resident.arrays["total"].close()
            future = resident.submit("twice", 1)
            with pytest.raises(kk.DeviceError):
                resident.resume()
            with pytest.raises(kk.DeviceError, match="an array of the resident grid was closed"):
                future.result(TIMEOUT)

    def test_a_grid_that_does_not_fit_beside_another_is_refused(self, cache: kk.ProgramCache) -> None:
        with self.opened(cache, blocks=1) as small, self.opened(cache, blocks=1) as second:
            grid = small._grid
            most = grid.blocks_place.count_blocks(grid._lease.program)
            with pytest.raises(
                kk.ArgumentError, match=r"beside 2 other resident grids with 2 blocks .* blocks= or sms="
            ):
                self.make(cache, blocks=most)
            assert small.submit("twice", 1).result(TIMEOUT) == second.submit("twice", 1).result(TIMEOUT) == 2
        with self.opened(cache, blocks=most) as large:
            with pytest.raises(kk.ArgumentError, match=f"at most 0 beside another resident grid with {most} blocks"):
                self.make(cache, blocks=1)
            assert large.submit("twice", 2).result(TIMEOUT) == 4
            with large.paused(), self.opened(cache, blocks=1) as small:
                assert small.submit("twice", 3).result(TIMEOUT) == 6
            assert large.submit("twice", 4).result(TIMEOUT) == 8

    def test_a_copy_that_comes_before_its_head_is_one_task(self, cache: kk.ProgramCache) -> None:
        """A host that is interrupted between the two stores: the record runs, and nothing behind it does."""
        with self.opened(cache, blocks=1) as resident:
            resident.submit("count", 0, 1).result(TIMEOUT)
            view = resident._grid.view
            packed = pack_record(resident._parts.table.task("count"), (0, 10), None, resident.layout.slot)
            record = np.frombuffer(packed, "u4")
            view.slots[0, 1] = record.view("u1")
            view.bytes.view("u8")[18 : 18 + len(record)] = record | np.uint64(2 << 32)
            assert eventually(lambda: resident.done[0] >= 2)
            beat = int(view.beat[0])  # one in a millisecond: the reader looks again and again meanwhile
            assert eventually(lambda: int(view.beat[0]) > beat + 3_000_000)
            assert resident.done == (2,)
            view.head[0] = 2
            assert self.read(resident, "total")[0] == 11


@pytest.mark.cuda
@pytest.mark.slow
class TestMillions(ResidentPart):
    """Large numbers, which take a GPU. Elsewhere they are small."""

    backend = "cuda"
    emulated = False

    @pytest.mark.parametrize("repetition", range(20))
    def test_a_million_tasks_of_all_kinds_from_eight_threads(
        self, cache: kk.ProgramCache, device: kk.Device, repetition: int
    ) -> None:
        """Every future completes once, sums are exact, and nothing hangs."""
        rounds = 125 if device.info.is_gpu else 1
        if not device.info.is_gpu and repetition:
            pytest.skip("once is enough without a GPU")
        with self.opened(cache, blocks=None if device.info.is_gpu else 2) as resident:

            def produce(producer: int) -> tuple[int, int]:
                done: list[Any] = []
                wide = 0
                for number in range(rounds):  # of 1000 tasks
                    singles = [resident.submit("twice", number * 1000 + k) for k in range(250)]
                    for k, future in enumerate(singles):
                        if k % 50 == 0:
                            future.add_done_callback(done.append)
                        resident.submit("count", producer, 1)
                    spread = resident.submit_many("count", [(16 + producer, 1)] * 249, ordered=False)
                    rows = np.zeros(250, resident.rows_dtype("twice"))
                    rows["v"] = np.arange(250) + producer
                    many = resident.submit_many("twice", rows)
                    assert resident.submit("everywhere", 1).result(60) == resident.blocks
                    wide += 1
                    assert many.result(60).tolist() == [2 * (k + producer) for k in range(250)]
                    assert [one.result(60) for one in singles] == [2 * (number * 1000 + k) for k in range(250)]
                    assert spread.result(60) is None
                resident.drain(60)
                return len(done), wide

            found = together(produce, 8)
            total = self.read(resident, "total")
            assert total[:8].tolist() == [250 * rounds] * 8
            assert total[16:24].tolist() == [249 * rounds] * 8
            assert self.read(resident, "part")[: resident.blocks].tolist() == [8 * rounds] * resident.blocks
            assert sum(wide for _, wide in found) == 8 * rounds

    def test_a_task_is_added_under_load_and_none_of_a_million_is_lost(
        self, cache: kk.ProgramCache, device: kk.Device
    ) -> None:
        each = 125_000 if device.info.is_gpu else 500
        with self.opened(cache, blocks=None if device.info.is_gpu else 2) as resident:
            pauses: list[float] = []

            def work(number: int) -> None:
                if number == 8:
                    for turn in range(10):
                        pauses.append(resident.add("late", f"() {{ if (kk_local_id(0) == 0) total[40] = {turn}; }}"))
                        resident.submit("late").result(60)
                    return
                for start in range(0, each, 100):
                    resident.submit_many("count", [(number, 1)] * 99)
                    resident.submit("count", number, 1)
                    if start % 10_000 == 0:
                        resident.drain(60)

            together(work, 9)
            total = self.read(resident, "total")
            assert total[:8].tolist() == [each] * 8
            assert total[40] == 9
            assert len(pauses) == 10
            print("pauses in ms:", ", ".join(f"{1e3 * one:.2f}" for one in pauses))
