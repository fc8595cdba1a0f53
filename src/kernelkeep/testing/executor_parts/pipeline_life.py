"""Pipelines: how they are awaited, cancelled, closed and collected, and what a mistake in one of their jobs costs."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...errors import ArgumentError, CompileError, DeviceError
from ...execution.executor import Executor
from ...execution.job import Job
from ...execution.pipeline import Pipeline
from ..device_parts.common import GROUP, groups
from .common import ITEMS, TIMEOUT, saxpy_batch, saxpy_result, stalled
from .pipeline_jobs import AFFINE, BROKEN, PipelinePart

__all__ = ["PipelineLifeTests"]


class PipelineLifeTests(PipelinePart):
    """A pipeline is waited for and ended as a job is, and an error is that of its batch."""

    # --- life

    def test_pipelines_can_be_awaited_and_streamed(self, executor: Executor, affine: Job) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result"})])
        x = np.arange(100, dtype="i4")

        async def main() -> None:
            results = await asyncio.gather(*(executor.run(pipeline, x=x, a=1, b=n, n=100) for n in range(20)))
            for number, result in enumerate(results):
                np.testing.assert_array_equal(result["result"], x + 2 * number)
            number = 0
            async for result in executor.stream(pipeline, ({"b": n} for n in range(9)), x=x, a=1, n=100):
                np.testing.assert_array_equal(result["result"], x + 2 * number)
                number += 1
            assert number == 9

        asyncio.run(asyncio.wait_for(main(), TIMEOUT))

    def test_a_pipeline_that_waits_can_be_cancelled(self, device: Device, job: Job, tally: Job) -> None:
        total = device.zeros(GROUP, "i4")
        pipeline = Pipeline([tally, tally])
        with Executor(device, 2) as executor:
            with stalled(executor, job, **saxpy_batch(0)):
                running = [executor.submit(pipeline, total=total, by=by, n=GROUP) for by in (1, 10)]
                waiting = executor.submit(pipeline, total=total, by=100, n=GROUP)
                assert waiting.cancel() and not any(future.cancel() for future in running)
            assert [int(future.result(TIMEOUT)["total"][0]) for future in running] == [2, 22]
            with pytest.raises(CancelledError):
                waiting.result(TIMEOUT)
        assert (total.numpy() == 22).all()

    def test_closing_finishes_what_was_submitted(self, device: Device, affine: Job) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result"})])
        x = np.arange(ITEMS, dtype="i4")
        executor = Executor(device, 3)
        futures = [executor.submit(pipeline, x=x, a=1, b=n, n=ITEMS) for n in range(6)]
        executor.close(timeout=TIMEOUT)
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(0)["result"], x + 2 * number)
        with pytest.raises(DeviceError, match="closed"):
            executor.submit(pipeline, x=x, a=1, b=1, n=ITEMS)

    def test_jobs_and_pipelines_share_an_executor(self, executor: Executor, affine: Job, job: Job) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result"})])
        x = np.arange(ITEMS, dtype="i4")
        for number in range(10):  # the pipeline's job on its own as well: it is bound once
            three = [
                executor.submit(pipeline, x=x, a=1, b=number, n=ITEMS),
                executor.submit(affine, x=x, a=3, b=number, n=ITEMS),
                executor.submit(job, **saxpy_batch(number)),
            ]
            first, second, third = (future.result(TIMEOUT) for future in three)
            np.testing.assert_array_equal(first["result"], x + 2 * number)
            np.testing.assert_array_equal(second["result"], 3 * x + number)
            np.testing.assert_array_equal(third["y"], saxpy_result(number))

    def test_a_pipeline_that_nobody_holds_is_collected(self, executor: Executor, cache: ProgramCache) -> None:
        job = Job(cache, AFFINE, grid=groups(10), outputs={"result": (10, "i4")})
        pipeline = Pipeline([job, (job, {"x": "result"})])
        executor.submit(pipeline, x=np.arange(10, dtype="i4"), a=1, b=1, n=10).result(TIMEOUT)
        gone = weakref.ref(pipeline), weakref.ref(job)
        del pipeline, job
        gc.collect()
        executor.submit(Pipeline([Job(cache, AFFINE, 1, {"result": (10, "i4")})]), x=[1], a=1, b=1, n=1).result(TIMEOUT)
        assert [one() for one in gone] == [None, None]

    # --- errors

    def test_an_error_in_the_middle_is_that_batch_alone(
        self, executor: Executor, cache: ProgramCache, affine: Job
    ) -> None:
        good = Pipeline([affine, (affine, {"x": "result"})])
        grid = Job(cache, AFFINE, grid=lambda batch: 2**40 if batch["b"] == 7 else 1, outputs={"result": (10, "i4")})
        bad = Pipeline([affine, (grid, {"x": "result"}), (affine, {"x": "result"})])
        x = np.arange(10, dtype="i4")
        assert (executor.submit(bad, x=x, a=1, b=1, n=10).result(TIMEOUT)["result"] == x + 3).all()
        futures = []
        for number in range(9):
            futures.append(executor.submit(bad, x=x, a=1, b=number, n=10))
            futures.append(executor.submit(good, x=x, a=1, b=number, n=10))
        for number in range(9):
            first, second = futures[2 * number], futures[2 * number + 1]
            if number == 7:
                assert isinstance(first.exception(TIMEOUT), ArgumentError)
            else:
                np.testing.assert_array_equal(first.result(TIMEOUT)["result"], x + 3 * number)
            np.testing.assert_array_equal(second.result(TIMEOUT)["result"], x + 2 * number)

    def test_a_job_that_does_not_compile_fails_the_batches_of_its_pipeline(
        self, executor: Executor, cache: ProgramCache, affine: Job
    ) -> None:
        broken = Job(cache, BROKEN, grid=1, outputs=["result"])
        pipeline = Pipeline([affine, broken])
        x = np.arange(10, dtype="i4")
        problem = executor.submit(pipeline, x=x, a=1, b=1, n=10).exception(TIMEOUT)
        assert isinstance(problem, CompileError) and "broken, line 2" in str(problem)
        assert (executor.submit(affine, x=x, a=1, b=1, n=10).result(TIMEOUT)["result"] == x + 1).all()

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"x": ...}, "job affine needs its argument 'x'; pass it with the batch"),
            ({"second": ...}, "job affine needs its argument 'b'; pass 'second' with the batch"),
            ({"z": 1}, "pipeline affine+affine has no argument 'z'; it has: x, result, a, b, n, second"),
            ({"x": np.zeros(10, "f4")}, "'x' of job affine must be int32, got float32"),
            ({"a": "2"}, "argument 2 (a)"), ({"second": None}, "argument 3 (b)"),
        ],
        ids=lambda value: value[:24] if isinstance(value, str) else "",
    )  # fmt: skip
    def test_wrong_arguments_of_a_pipeline_fail_the_future(
        self, executor: Executor, affine: Job, changes: Any, said: str
    ) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result", "b": "second"})])
        right = {"x": np.arange(10, dtype="i4"), "a": 1, "b": 1, "second": 2, "n": 10}
        wrong = {name: value for name, value in (right | changes).items() if value is not ...}
        problem = executor.submit(pipeline, **wrong).exception(TIMEOUT)
        assert type(problem) is ArgumentError and said in str(problem), repr(problem)
        assert (executor.submit(pipeline, **right).result(TIMEOUT)["result"] == np.arange(10) + 3).all()

    def test_a_failed_batch_leaves_the_iteration_of_map_alone(self, executor: Executor, affine: Job) -> None:
        pipeline = Pipeline([affine, (affine, {"x": "result"})])

        def batches() -> Iterator[dict[str, Any]]:
            for number in range(9):
                yield {"b": "no number" if number == 4 else number}

        x = np.arange(10, dtype="i4")
        results = list(executor.map(pipeline, batches(), x=x, a=1, n=10, return_exceptions=True))
        assert isinstance(results[4], ArgumentError)
        for number in {*range(9)} - {4}:
            np.testing.assert_array_equal(results[number]["result"], x + 2 * number)
