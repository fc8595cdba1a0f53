"""Outputs: buffers that are only written, several at once, and results that the caller keeps."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...devices.registry import open_device
from ...execution.executor import Executor
from ...execution.job import Job
from ...programs.portable import Buffer, PortableKernel, Scalar
from ..device_parts.common import GROUP, SAXPY, groups
from .common import ITEMS, RAMP, TALLY, TIMEOUT, ExecutorPart, saxpy_batch, saxpy_result

__all__ = ["OutputTests"]

_LARGE = 300_000  # elements: results of this size may be the very memory they were downloaded to


class OutputTests(ExecutorPart):
    """A result is an ordinary array that belongs to the caller."""

    def test_a_write_only_output_needs_no_input(self, executor: Executor, cache: ProgramCache) -> None:
        job = Job(cache, RAMP, grid=groups(ITEMS), outputs={"numbers": ((ITEMS,), "i4")})
        for start in (0, 5, -9):
            result = executor.submit(job, start=start, n=ITEMS).result(TIMEOUT)["numbers"]
            assert (result.shape, result.dtype) == ((ITEMS,), np.int32)
            np.testing.assert_array_equal(result, start + np.arange(ITEMS))

    def test_an_output_starts_as_zeros(self, executor: Executor, tally: Job, ramp: Job) -> None:
        for by in (1, 2, 3, 4, 5, 6):
            executor.submit(ramp, start=1000, n=GROUP).result(TIMEOUT)  # leaves something in memory of that size
            assert (executor.submit(tally, by=by, n=GROUP).result(TIMEOUT)["total"] == by).all()

    def test_an_output_that_the_kernel_does_not_write_is_zeros(self, executor: Executor, tally: Job, ramp: Job) -> None:
        for _ in range(4):
            executor.submit(ramp, start=1000, n=GROUP).result(TIMEOUT)
            result = executor.submit(tally, by=7, n=3).result(TIMEOUT)["total"]
            assert result.tolist() == [7] * 3 + [0] * (GROUP - 3)

    def test_an_output_that_is_passed_in_keeps_its_shape(self, executor: Executor, cache: ProgramCache) -> None:
        given = np.arange(10, dtype="i4").reshape(2, 5)
        for outputs in (["total"], {"total": ((2, 5), "i4")}):
            job = Job(cache, TALLY, grid=1, outputs=outputs)
            result = executor.submit(job, total=given, by=3, n=10).result(TIMEOUT)["total"]
            np.testing.assert_array_equal(result, given + 3)

    @pytest.mark.parametrize(
        "names", [["sum", "difference"], ["difference"], "sum", {"sum": None}, ("difference", "sum")]
    )
    def test_a_job_may_have_several_outputs(self, executor: Executor, cache: ProgramCache, names: Any) -> None:
        both = PortableKernel(
            "both",
            params=[
                Buffer("sum", "i4", "rw"), Buffer("x", "i4", "r"), Buffer("difference", "i4", "rw"), Scalar("n", "i4"),
            ],
            body="int i = kk_global_id(0);\nif (i < n) { sum[i] = sum[i] + x[i]; difference[i] = difference[i] - x[i]; }",
            group=GROUP,
        )  # fmt: skip
        job = Job(cache, both, grid=groups(ITEMS), outputs=names)
        wanted = {names} if isinstance(names, str) else set(names)
        numbers = np.arange(ITEMS, dtype="i4")
        futures = [executor.submit(job, sum=numbers, x=numbers * k, difference=numbers, n=ITEMS) for k in range(6)]
        for k, future in enumerate(futures):
            result = future.result(TIMEOUT)
            assert set(result) == wanted
            for name, array in result.items():
                np.testing.assert_array_equal(array, numbers + numbers * k if name == "sum" else numbers - numbers * k)

    @pytest.mark.parametrize(("shape", "dtype"), [((7, 11), "i4"), (77, "i4"), ([7, 11, 1], np.int32), ((77,), ">i4")])
    def test_outputs_take_shape_and_dtype_in_every_form(
        self, executor: Executor, cache: ProgramCache, shape: Any, dtype: Any
    ) -> None:
        job = Job(cache, RAMP, grid=2, outputs={"numbers": (shape, dtype)})
        result = executor.submit(job, start=0, n=77).result(TIMEOUT)["numbers"]
        assert result.shape == (tuple(shape) if isinstance(shape, tuple | list) else (shape,))
        assert result.dtype == np.int32 and result.dtype.isnative
        assert result.ravel().tolist() == list(range(77))

    def test_an_output_may_be_empty(self, executor: Executor, ramp: Job) -> None:
        assert executor.submit(ramp, start=0, n=0).result(TIMEOUT)["numbers"].shape == (0,)

    # --- ownership

    @pytest.mark.parametrize("items", [ITEMS, _LARGE])
    def test_results_that_are_kept_together_stay_correct(self, executor: Executor, ramp: Job, items: int) -> None:
        """More results than the executor lends blocks for: no block is lent twice."""
        count = 60 if items == ITEMS else 30
        held = [
            future.result(TIMEOUT)["numbers"]
            for future in [executor.submit(ramp, start=n, n=items) for n in range(count)]
        ]
        later = [executor.submit(ramp, start=-n, n=items).result(TIMEOUT)["numbers"] for n in range(count)]
        numbers = np.arange(items)
        for n in range(count):
            np.testing.assert_array_equal(held[n], n + numbers)
            np.testing.assert_array_equal(later[n], -n + numbers)

    def test_writing_to_a_result_harms_no_other_batch(self, executor: Executor, job: Job) -> None:
        first = executor.submit(job, **saxpy_batch(1, _LARGE)).result(TIMEOUT)["y"]
        first[:] = -1
        later = [executor.submit(job, **saxpy_batch(n, _LARGE)).result(TIMEOUT)["y"] for n in range(8)]
        assert (first == -1).all()
        for number, result in enumerate(later):
            np.testing.assert_array_equal(result, saxpy_result(number, _LARGE))

    def test_a_view_keeps_its_result_alive(self, executor: Executor, ramp: Job) -> None:
        views = [executor.submit(ramp, start=n, n=_LARGE).result(TIMEOUT)["numbers"][-5:] for n in range(12)]
        gc.collect()
        for n in range(20):
            executor.submit(ramp, start=-n, n=_LARGE).result(TIMEOUT)
        for n, view in enumerate(views):
            np.testing.assert_array_equal(view, n + np.arange(_LARGE - 5, _LARGE))

    def test_results_outlive_executor_cache_and_device(self, device: Device, tmp_path: Any) -> None:
        with open_device(device.spec) as other, ProgramCache(other, tmp_path) as cache, Executor(other) as executor:
            job = Job(cache, SAXPY, grid=lambda batch: groups(batch["n"]), outputs=["y"])
            small = [executor.submit(job, **saxpy_batch(n)).result(TIMEOUT)["y"] for n in range(4)]
            large = [executor.submit(job, **saxpy_batch(n, _LARGE)).result(TIMEOUT)["y"] for n in range(4)]
        del other, cache, executor, job
        gc.collect()
        for number in range(4):
            np.testing.assert_array_equal(small[number], saxpy_result(number))
            np.testing.assert_array_equal(large[number], saxpy_result(number, _LARGE))
            large[number][:] = 0
        del small, large
        gc.collect()
