"""The end of an executor: closed, cancelled, collected, or after its device or cache was closed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...devices.registry import open_device
from ...errors import DeviceError
from ...execution.executor import Executor
from ...execution.job import Job
from ..device_parts.common import GROUP, SAXPY, groups
from ..process import run_python
from .common import CHAIN, TIMEOUT, ExecutorPart, eventually, our_threads, saxpy_batch, saxpy_result, stalled

__all__ = ["EndingTests"]

# Batches are under way when the script ends; their results arrive only if the interpreter waits for them.
_AT_EXIT = """
import os, sys
import numpy as np
import kernelkeep as kk

os.cpu_count = lambda: 8  # large arrays are then copied by several threads, which the interpreter ends early
spec, folder, way = sys.argv[1:]
chain = kk.PortableKernel(
    "chain", params=[kk.Buffer("y", "u4", "rw"), kk.Scalar("steps", "i4")], group=64,
    body="int i = kk_global_id(0); uint v = y[i];"
    "for (int k = 0; k < steps; k = k + 1) v = (v ^ (v >> 7)) * 1664525u + 1013904223u; y[i] = v;",
)
device = kk.open_device(spec)
cache = kk.ProgramCache(device, folder)
job = kk.Job(cache, chain, grid=lambda batch: len(batch["y"]) // 64, outputs=["y"])
items = 1 << 19  # 2 MiB

def use(executor):
    executor.submit(job, y=np.zeros(items, "u4"), steps=1).result(60)
    for number in range(5):
        future = executor.submit(job, y=np.full(items, number, "u4"), steps=300)
        future.add_done_callback(lambda done, number=number: print(number, done.exception(), flush=True))

if way == "collected":
    use(kk.Executor(device))
else:
    executor = kk.Executor(device)
    use(executor)
"""


class EndingTests(ExecutorPart):
    """However it ends, every future is resolved, and no thread, lease or batch is left behind."""

    def test_close_finishes_every_batch(self, device: Device, job: Job) -> None:
        executor = Executor(device, 2)
        futures = [executor.submit(job, **saxpy_batch(n)) for n in range(12)]
        assert not executor.closed
        executor.close()
        assert executor.closed and "closed" in repr(executor)
        assert all(future.done() for future in futures)
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(0)["y"], saxpy_result(number))
        executor.close()
        executor.close(cancel=True)
        assert our_threads() == []
        with pytest.raises(DeviceError, match="closed"):
            executor.submit(job, **saxpy_batch(0))

    def test_close_before_the_first_batch(self, device: Device) -> None:
        executor = Executor(device)
        executor.close()
        with executor:
            pass
        assert executor.closed

    def test_close_with_cancel_cancels_what_has_not_begun(self, device: Device, job: Job, tally: Job) -> None:
        total = device.array(np.zeros(GROUP, "i4"))
        executor = Executor(device, 2)
        with stalled(executor, job, **saxpy_batch(0)):
            running = [executor.submit(tally, total=total, by=by, n=GROUP) for by in (1, 10)]
            waiting = executor.submit(tally, total=total, by=100, n=GROUP)
            closer = threading.Thread(target=executor.close, kwargs={"cancel": True})
            closer.start()
            with pytest.raises(CancelledError):
                waiting.result(TIMEOUT)  # at once, although what runs has not ended
            assert not any(future.done() for future in running)
        closer.join(TIMEOUT)
        assert not closer.is_alive()
        assert [int(future.result(0)["total"][0]) for future in running] == [1, 11]
        assert (total.numpy() == 11).all()

    def test_close_wakes_threads_that_wait_in_submit(self, device: Device, job: Job) -> None:
        executor, problems = Executor(device, 1), []

        def submit_many() -> None:
            try:
                while True:
                    executor.submit(job, **saxpy_batch(0))
            except DeviceError as error:
                problems.append(error)

        with stalled(executor, job, **saxpy_batch(0)):
            submitter = threading.Thread(target=submit_many, daemon=True)
            submitter.start()
            closer = threading.Thread(target=executor.close, daemon=True)
            closer.start()
            submitter.join(TIMEOUT)
            assert not submitter.is_alive(), "submit waits for room that a closed executor never has"
        closer.join(TIMEOUT)
        assert not closer.is_alive()
        assert "closed" in str(problems[0])

    def test_close_raises_after_its_timeout(self, device: Device, job: Job) -> None:
        executor = Executor(device, 2)
        with stalled(executor, job, **saxpy_batch(0)):
            future = executor.submit(job, **saxpy_batch(1))
            with pytest.raises(DeviceError, match="not done after"):
                executor.close(timeout=0.05)
        np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(1))
        executor.close(timeout=TIMEOUT)
        assert our_threads() == []

    def test_leaving_the_block_finishes_every_batch(self, device: Device, job: Job, tally: Job) -> None:
        total = device.array(np.zeros(GROUP, "i4"))
        executor, stall, futures = Executor(device, 2), contextlib.ExitStack(), list[Future[Any]]()

        def block() -> None:
            with executor:
                stall.enter_context(stalled(executor, job, **saxpy_batch(0)))
                futures.extend(executor.submit(tally, total=total, by=by, n=GROUP) for by in (1, 10, 100))

        runner = threading.Thread(target=block, daemon=True)
        runner.start()
        assert eventually(lambda: executor.closed)
        assert runner.is_alive() and not any(future.done() for future in futures)
        stall.close()
        runner.join(TIMEOUT)
        assert not runner.is_alive()
        assert [int(future.result(0)["total"][0]) for future in futures] == [1, 11, 111]

    def test_a_block_that_raises_cancels_what_has_not_begun(self, device: Device, job: Job, tally: Job) -> None:
        total = device.array(np.zeros(GROUP, "i4"))
        futures: list[Future[Any]] = []
        problems: list[BaseException] = []
        stall = contextlib.ExitStack()

        def block() -> None:
            try:
                with Executor(device, 2) as executor:
                    stall.enter_context(stalled(executor, job, **saxpy_batch(0)))
                    futures.extend(executor.submit(tally, total=total, by=by, n=GROUP) for by in (1, 10, 100))
                    raise KeyError("something else")
            except BaseException as error:
                problems.append(error)

        runner = threading.Thread(target=block, daemon=True)
        runner.start()
        assert eventually(lambda: len(futures) == 3)
        with pytest.raises(CancelledError):  # after an error, what has not begun is cancelled
            futures[2].result(TIMEOUT)
        assert runner.is_alive() and not problems, "what has begun is waited for"
        stall.close()
        runner.join(TIMEOUT)
        assert [type(problem) for problem in problems] == [KeyError]
        assert [int(future.result(0)["total"][0]) for future in futures[:2]] == [1, 11]
        assert (total.numpy() == 11).all()

    def test_close_in_a_callback_does_not_deadlock(self, device: Device, cache: ProgramCache) -> None:
        executor, closed = Executor(device, 2), threading.Event()
        job = Job(cache, SAXPY, grid=groups(1001), outputs=["y"])

        def close(_: Future[Any]) -> None:
            executor.close()
            closed.set()

        futures = [executor.submit(job, **saxpy_batch(n)) for n in range(4)]
        futures[0].add_done_callback(close)
        assert closed.wait(TIMEOUT)
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(number))
        with pytest.raises(DeviceError, match="closed"):
            executor.submit(job, **saxpy_batch(0))
        assert eventually(lambda: our_threads() == []), "nobody closes it a second time, and its thread stays"

    # --- collected

    def test_an_executor_that_is_collected_finishes_its_batches(self, device: Device, tmp_path: Path) -> None:
        with ProgramCache(device, tmp_path) as cache:
            job = Job(cache, SAXPY, grid=groups(1001), outputs=["y"])
            for _ in range(3):
                executor = Executor(device)
                futures = [executor.submit(job, **saxpy_batch(n)) for n in range(6)]
                del executor
                gc.collect()
                for number, future in enumerate(futures):
                    np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(number))
            assert eventually(lambda: our_threads() == [])
            cache.trim(0)
            assert cache.stats().programs == 0, "a lease is still held"

    def test_executors_of_event_loops_leave_no_threads(self, device: Device, job: Job) -> None:
        async def main() -> None:
            await asyncio.gather(*(Executor(device).run(job, **saxpy_batch(n)) for n in range(3)))

        asyncio.run(asyncio.wait_for(main(), TIMEOUT))
        assert eventually(lambda: our_threads() == [])
        executor = Executor(device)
        asyncio.run(asyncio.wait_for(executor.run(job, **saxpy_batch(0)), TIMEOUT))
        executor.close()
        assert our_threads() == [], "closed means that nothing of it runs any more, also while somebody holds it"

    def test_a_job_that_is_collected_releases_its_program(self, device: Device, tmp_path: Path) -> None:
        with ProgramCache(device, tmp_path) as cache, Executor(device) as executor:
            other = Job(cache, CHAIN, grid=1, outputs=["y"])
            job = Job(cache, SAXPY, grid=groups(1001), outputs=["y"])
            executor.submit(job, **saxpy_batch(0)).result(TIMEOUT)
            cache.trim(0)
            assert cache.stats().programs == 1, "a program in use stays"
            del job
            gc.collect()
            executor.submit(other, y=np.zeros(64, "u4"), steps=1).result(TIMEOUT)
            assert eventually(lambda: cache.trim(0) >= 0 and cache.stats().programs == 1), "only the other's is held"

    @pytest.mark.parametrize("way", ["held", "collected"])
    def test_the_interpreter_waits_for_the_batches(self, device: Device, cache: ProgramCache, way: str) -> None:
        done = run_python(_AT_EXIT, device.spec, cache.cache_dir, way)
        assert done.stderr == ""
        assert done.stdout.splitlines() == [f"{number} None" for number in range(5)]

    # --- device or cache closed first

    def test_closing_the_device_closes_the_executor(self, device: Device, tmp_path: Path) -> None:
        with open_device(device.spec) as other:
            cache = ProgramCache(other, tmp_path)
            job = Job(cache, SAXPY, grid=groups(1001), outputs=["y"])
            executor = Executor(other, 2)
            futures = [executor.submit(job, **saxpy_batch(n)) for n in range(8)]
        assert executor.closed
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(number))
        with pytest.raises(DeviceError, match="closed"):
            executor.submit(job, **saxpy_batch(0))
        executor.close()
        with pytest.raises(DeviceError, match="closed"):
            Executor(other)
        cache.close()

    def test_closing_the_device_under_a_collected_executor(self, device: Device, tmp_path: Path) -> None:
        with open_device(device.spec) as other, ProgramCache(other, tmp_path) as cache:
            job = Job(cache, CHAIN, grid=lambda batch: groups(len(batch["y"])), outputs=["y"])
            executor = Executor(other)
            executor.submit(job, y=np.zeros(4096, "u4"), steps=1).result(TIMEOUT)
            futures = [executor.submit(job, y=np.zeros(4096, "u4"), steps=20_000) for _ in range(5)]
            del executor
            gc.collect()
            other.close()
        for future in futures:
            assert future.exception(TIMEOUT) is None
        assert eventually(lambda: our_threads() == [])

    def test_closing_the_cache_first_fails_later_batches(self, device: Device, tmp_path: Path) -> None:
        """Batches whose program is closed raise; those that were on the device already are correct."""
        with ProgramCache(device, tmp_path) as cache, Executor(device, 2) as executor:
            job = Job(cache, CHAIN, grid=lambda batch: groups(len(batch["y"])), outputs=["y"])
            expected = executor.submit(job, y=np.zeros(4096, "u4"), steps=20_000).result(TIMEOUT)["y"]
            futures = [executor.submit(job, y=np.zeros(4096, "u4"), steps=20_000) for _ in range(4)]
            cache.close()
            for future in futures:
                problem = future.exception(TIMEOUT)
                assert problem is None or isinstance(problem, DeviceError), repr(problem)
                assert problem is not None or (future.result(0)["y"] == expected).all()
            for _ in range(3):
                problem = executor.submit(job, y=np.zeros(4096, "u4"), steps=1).exception(TIMEOUT)
                assert isinstance(problem, DeviceError) and "closed" in str(problem), repr(problem)
