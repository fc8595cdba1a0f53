"""`map`: results in order, batches taken as they are needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ...devices.base import Device
from ...errors import ArgumentError, DeviceError
from ...execution.executor import Executor
from ...execution.job import Job
from .common import ITEMS, TIMEOUT, ExecutorPart, saxpy_batch, saxpy_result

__all__ = ["MapTests"]


class _Counted:
    """Batches of the ramp without end, and how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in itertools.count():
            self.taken += 1
            yield {"start": number, "n": ITEMS}


def _starts(results: Any) -> list[int]:
    return [int(result["numbers"][0]) for result in results]


def _all_of(results: Iterator[Any]) -> tuple[list[int], Exception | None]:
    """The results, and the error that ended them."""
    seen: list[int] = []
    try:
        for result in results:
            seen.append(int(result["numbers"][0]))
    except Exception as error:
        return seen, error
    return seen, None


class MapTests(ExecutorPart):
    """`map` is a loop over `submit` that the caller need not write."""

    @pytest.mark.parametrize("depth", [1, 2, 3, 5])
    def test_map_yields_results_in_order(self, device: Device, job: Job, depth: int) -> None:
        large = 7000 if self.is_interpreter(device) else 70_000
        sizes = [5, large, 5, 1001, large // 2, 1] * 5  # some take much longer than others
        with Executor(device, depth) as executor:
            results = executor.map(job, (saxpy_batch(k, n) for k, n in enumerate(sizes)))
            count = 0
            for k, (n, result) in enumerate(zip(sizes, results, strict=True)):
                np.testing.assert_array_equal(result["y"], saxpy_result(k, n))
                count += 1
        assert count == len(sizes)

    @pytest.mark.parametrize("depth", [1, 3])
    def test_map_takes_few_batches_of_an_endless_iterator(self, device: Device, ramp: Job, depth: int) -> None:
        endless = _Counted()
        with Executor(device, depth) as executor:
            results = executor.map(ramp, endless)
            assert endless.taken == 0, "nothing is taken before a result is asked for"
            for number in range(50):
                assert int(next(results)["numbers"][0]) == number
                assert number < endless.taken <= number + 1 + (depth + 1 if depth > 1 else 0)

    def test_map_passes_common_arguments_to_every_batch(self, executor: Executor, ramp: Job) -> None:
        assert _starts(executor.map(ramp, ({"start": k} for k in range(9)), n=3)) == list(range(9))
        mixed = [{}, {"start": 5}, {}, {"n": 2}]
        results = list(executor.map(ramp, mixed, n=3, start=1))  # a batch's own arguments take precedence
        assert [result["numbers"].tolist() for result in results] == [[1, 2, 3], [5, 6, 7], [1, 2, 3], [1, 2]]

    def test_map_of_nothing_yields_nothing(self, executor: Executor, ramp: Job) -> None:
        assert list(executor.map(ramp, [])) == []

    def test_map_yields_the_results_before_an_iterator_that_raises(self, executor: Executor, ramp: Job) -> None:
        def batches() -> Iterator[dict[str, int]]:
            yield from ({"start": k, "n": 3} for k in range(7))
            raise RuntimeError("the disk is on fire")

        results = executor.map(ramp, batches())
        seen, problem = _all_of(results)
        assert isinstance(problem, RuntimeError) and "on fire" in str(problem)
        assert seen == list(range(7)), "what it gave before comes first"
        assert list(results) == [], "and that was the end"
        assert _starts([executor.submit(ramp, start=3, n=3).result(TIMEOUT)]) == [3]

    @pytest.mark.parametrize(
        ("bad", "kind"),
        [({"start": 1.5, "n": 3}, ArgumentError), ({"start": 1}, KeyError), (7, ArgumentError), (None, ArgumentError)],
        ids=["wrong", "missing", "number", "None"],
    )
    def test_a_batch_that_fails_raises_at_its_turn(
        self, executor: Executor, ramp: Job, bad: Any, kind: type[Exception]
    ) -> None:
        batches: list[Any] = [{"start": k, "n": 3} for k in range(8)]
        batches[5] = bad
        results = executor.map(ramp, iter(batches))
        seen, problem = _all_of(results)
        assert type(problem) is kind
        assert seen == list(range(5))
        assert list(results) == []

    def test_map_can_return_exceptions(self, executor: Executor, ramp: Job) -> None:
        batches: list[Any] = [{"start": k, "n": 3} for k in range(10)]
        batches[0], batches[4], batches[5], batches[9] = {"start": "x", "n": 3}, 7, {"n": 3}, {"start": 0, "n": -1}
        results = list(executor.map(ramp, batches, return_exceptions=True))
        assert [k for k, result in enumerate(results) if isinstance(result, ArgumentError)] == [0, 4, 5, 9]
        assert _starts(result for result in results if isinstance(result, dict)) == [1, 2, 3, 6, 7, 8]

    def test_a_map_that_is_dropped_cancels_its_batches(self, executor: Executor, ramp: Job) -> None:
        for turn in range(20):
            results = executor.map(ramp, _Counted())
            for _ in range(turn % 4):
                next(results)
            results.close()  # type: ignore[attr-defined]
        assert _starts(executor.map(ramp, ({"start": k, "n": 3} for k in range(9)))) == list(range(9))

    def test_two_maps_can_be_interleaved(self, executor: Executor, job: Job, ramp: Job) -> None:
        ramps = executor.map(ramp, ({"start": k, "n": ITEMS} for k in range(30)))
        sums = executor.map(job, (saxpy_batch(k) for k in range(30)))
        for k, (one, other) in enumerate(zip(ramps, sums, strict=True)):
            assert int(one["numbers"][0]) == k
            np.testing.assert_array_equal(other["y"], saxpy_result(k))

    def test_wrong_use(self, executor: Executor, ramp: Job) -> None:
        for wrong in (None, "ramp", ramp.source):
            with pytest.raises(ArgumentError, match="Job"):
                executor.map(wrong, [])  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            executor.map(ramp, 5)  # type: ignore[arg-type]

    def test_map_on_a_closed_executor_raises(self, device: Device, ramp: Job) -> None:
        executor = Executor(device)
        executor.close()
        with pytest.raises(DeviceError, match="closed"):
            next(executor.map(ramp, _Counted()))
