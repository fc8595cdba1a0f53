"""An error of one batch is the exception of its own future, and of no other."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.base import Device
from ...devices.registry import open_device
from ...errors import ArgumentError, CompileError, DeviceError
from ...execution.executor import Executor
from ...execution.job import Job
from ...programs.portable import Buffer, PortableKernel
from ..device_parts.common import SAXPY, groups, handwritten_saxpy
from .common import ITEMS, RAMP, TALLY, TIMEOUT, ExecutorPart, saxpy_batch, saxpy_result

__all__ = ["FailureTests"]

_BROKEN = PortableKernel("broken", params=[Buffer("y", "f4", "rw")], body="int i = 0;\ny[i] = no_such_thing;", group=64)


class FailureTests(ExecutorPart):
    """An error has a type and a sentence, and the pipeline goes on."""

    @staticmethod
    def check(
        executor: Executor, good: Job, bad: Job, batch: Any, kind: type[BaseException], said: str, times: int = 8
    ) -> None:
        """The bad batch between good ones, more often than there are slots."""
        futures: list[tuple[int | None, Future[Any]]] = []
        for number in range(16):
            futures.append((number, executor.submit(good, **saxpy_batch(number))))
            if number < times:
                futures.append((None, executor.submit(bad, **batch)))
        for expected, future in futures:
            if expected is None:
                problem = future.exception(TIMEOUT)
                assert type(problem) is kind, repr(problem)
                assert said in str(problem)
            else:
                np.testing.assert_array_equal(future.result(TIMEOUT)["y"], saxpy_result(expected))

    def test_a_source_that_does_not_compile_fails_its_batches(
        self, executor: Executor, cache: ProgramCache, job: Job
    ) -> None:
        bad = Job(cache, _BROKEN, grid=1, outputs=["y"])
        self.check(executor, job, bad, {"y": np.zeros(4, "f4")}, CompileError, "broken, line 2", 2)
        problem = executor.submit(bad, y=np.zeros(4, "f4")).exception(TIMEOUT)
        assert isinstance(problem, CompileError) and problem.line == 2 and "no_such_thing" in problem.log

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"x": ...}, "needs its argument 'x'"), ({"a": ...}, "needs its argument 'a'"),
            ({"y": ...}, "output 'y' of job saxpy has neither"), ({"z": 1}, "no argument 'z'; it has: x, y, a, n"),
            ({"x": np.zeros(ITEMS)}, "'x' of job saxpy must be float32, got float64"),
            ({"y": np.zeros(ITEMS, "i4")}, "'y' of job saxpy must be float32, got int32"),
            ({"x": [1, 1e300]}, "'x' of job saxpy: the numbers must fit into float32"),
            ({"x": "text"}, "'x'"), ({"x": None}, "'x'"),
            ({"x": 3.0}, "'x' of job saxpy must be an array, got the number 3.0"),
            ({"x": True}, "must be an array"), ({"x": np.float32(3)}, "must be an array"),
            ({"x": [object()]}, "'x'"), ({"a": "2"}, "argument 2 (a)"), ({"a": np.float64(1e39)}, "argument 2 (a)"),
            ({"n": np.float64(5)}, "argument 3 (n)"), ({"a": None}, "argument 2 (a)"), ({"a": np.ones(3, "f4")}, "argument 2"),
        ],
        ids=lambda value: value[:24] if isinstance(value, str) else "",
    )  # fmt: skip
    def test_wrong_arguments_fail_the_future(
        self, executor: Executor, job: Job, cache: ProgramCache, changes: Any, said: str
    ) -> None:
        fixed = Job(cache, SAXPY, grid=groups(ITEMS), outputs=["y"])
        batch = {name: value for name, value in (saxpy_batch(0) | changes).items() if value is not ...}
        self.check(executor, job, fixed, batch, ArgumentError, said)

    @pytest.mark.parametrize(
        "grid", [0, -1, (1, 0), (1, 1, 1, 1), (), 16.0, "16", None, {}, 2**40], ids=lambda grid: repr(grid)
    )
    def test_a_wrong_grid_fails_the_future(self, executor: Executor, job: Job, cache: ProgramCache, grid: Any) -> None:
        bad = Job(cache, SAXPY, grid=lambda batch: grid if batch["a"] == 2 else 16, outputs=["y"])
        executor.submit(bad, **saxpy_batch(0) | {"a": 1.0}).result(TIMEOUT)  # 16 is a grid, 16.0 is none
        self.check(executor, job, bad, saxpy_batch(0), ArgumentError, "grid")

    def test_a_wrong_group_fails_the_future(self, executor: Executor, job: Job, cache: ProgramCache) -> None:
        bad = Job(cache, SAXPY, grid=16, outputs=["y"], group=32)
        self.check(executor, job, bad, saxpy_batch(0), ArgumentError, "group")

    def test_functions_of_a_job_that_raise_fail_the_future(
        self, executor: Executor, job: Job, cache: ProgramCache
    ) -> None:
        bad = Job(cache, SAXPY, grid=lambda batch: 1 // 0, outputs=["y"])
        self.check(executor, job, bad, saxpy_batch(0), ZeroDivisionError, "zero")
        bad = Job(cache, RAMP, grid=1, outputs={"numbers": lambda batch: (batch["size"], "i4")})
        self.check(executor, job, bad, {"start": 0, "n": 5}, KeyError, "size")

    @pytest.mark.parametrize(
        ("wanted", "said"),
        [(lambda b: (5, "f4"), "must be int32 as in the kernel, got float32"), (lambda b: 5, "pair of shape and dtype"),
         (lambda b: (-5, "i4"), "negative"), (lambda b: (5, "x"), "dtype must be"), (None, "neither shape nor dtype")],
        ids=["dtype", "no-pair", "negative", "no-dtype", "nothing"],
    )  # fmt: skip
    def test_wrong_outputs_fail_the_future(
        self, executor: Executor, job: Job, cache: ProgramCache, wanted: Any, said: str
    ) -> None:
        bad = Job(cache, RAMP, grid=1, outputs={"numbers": wanted})
        self.check(executor, job, bad, {"start": 0, "n": 5}, ArgumentError, said)

    def test_an_output_of_another_dtype_than_the_array_fails_the_future(
        self, executor: Executor, job: Job, cache: ProgramCache
    ) -> None:
        bad = Job(cache, TALLY, grid=1, outputs={"total": lambda batch: (5, "f4")})
        self.check(executor, job, bad, {"total": np.zeros(5, "i4"), "by": 1, "n": 5}, ArgumentError, "float32")

    @pytest.mark.parametrize("passed", [(3,), (7,), (1, 5)], ids=repr)
    def test_an_output_of_another_shape_than_the_array_fails_the_future(
        self, executor: Executor, job: Job, cache: ProgramCache, passed: tuple[int, ...]
    ) -> None:
        """The kernel may write as far as `outputs=` says, which was beyond the end of a smaller array."""
        bad = Job(cache, TALLY, grid=1, outputs={"total": (5, "i4")})
        batch = {"total": np.zeros(passed, "i4"), "by": 1, "n": 5}
        self.check(
            executor,
            job,
            bad,
            batch,
            ArgumentError,
            f"has the shape (5,) in outputs=, but the array was passed with the batch, with the shape {passed}",
        )

    def test_names_of_a_source_are_checked_once_it_is_compiled(
        self, device: Device, executor: Executor, job: Job, cache: ProgramCache
    ) -> None:
        source = handwritten_saxpy(device.language)  # what it takes is known once it is compiled
        batch = saxpy_batch(0) | {"a": np.float32(2), "n": np.int32(ITEMS)}
        bad = Job(cache, source, grid=16, outputs=["z"], group=64)
        self.check(executor, job, bad, batch, ArgumentError, "output 'z' of job saxpy must be a buffer")
        bad = Job(cache, source, grid=16, outputs=["a"], group=64)
        self.check(executor, job, bad, batch, ArgumentError, "output 'a' of job saxpy must be a buffer")
        bad = Job(cache, source, grid=16, outputs=["y"], kernel="daxpy", group=64)
        self.check(executor, job, bad, batch, ArgumentError, "no kernel 'daxpy'")

    def test_device_arrays_that_do_not_fit_fail_the_future(self, device: Device, executor: Executor, job: Job) -> None:
        closed = device.array(np.zeros(ITEMS, "f4"))
        closed.close()
        self.check(executor, job, job, saxpy_batch(0) | {"x": closed}, DeviceError, "closed")
        wrong = device.array(np.zeros(ITEMS, "i4"))
        self.check(executor, job, job, saxpy_batch(0) | {"y": wrong}, ArgumentError, "argument 1 (y)")
        with open_device(device.spec) as other:
            theirs = other.array(np.zeros(ITEMS, "f4"))
            self.check(executor, job, job, saxpy_batch(0) | {"x": theirs}, ArgumentError, "argument 0 (x)")

    @pytest.mark.parametrize("wrong", [None, "saxpy", SAXPY])
    def test_submit_rejects_what_is_not_a_job(self, executor: Executor, wrong: Any) -> None:
        with pytest.raises(ArgumentError, match="Job"):
            executor.submit(wrong, **saxpy_batch(0))

    @pytest.mark.parametrize("depth", [0, -1, 1.5, True, None, "3"])
    def test_an_executor_rejects_a_depth_that_is_not_positive(self, device: Device, depth: Any) -> None:
        with pytest.raises(ArgumentError, match="depth"):
            Executor(device, depth)

    @pytest.mark.parametrize("wrong", [None, "device", 0])
    def test_an_executor_rejects_what_is_not_a_device(self, wrong: Any) -> None:
        with pytest.raises(ArgumentError, match="open_device"):
            Executor(wrong)
