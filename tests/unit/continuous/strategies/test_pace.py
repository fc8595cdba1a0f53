"""The size of the next slice: on devices that run tasks one by one, and on those that run thousands in the time of one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from kernelkeep.continuous.strategies.pace import AIM, MOST, Pace

Clock = Callable[[int, int], float]  # of the first task's number and how many there are: seconds


def _drain(pace: Pace, tasks: int, seconds: Clock) -> list[tuple[int, float]]:
    """Every slice that it takes to handle the tasks: its size, and what it took."""
    slices: list[tuple[int, float]] = []
    done = 0
    while done < tasks:
        size = min(pace.size, tasks - done)
        taken = seconds(done, size)
        pace.note(size, taken)
        slices.append((size, taken))
        done += size
        assert len(slices) < 20_000, "it does not get on"
    return slices


def _wide(task_seconds: float, width: int) -> Clock:
    """A GPU: so many tasks take as long as one."""
    return lambda first, size: 50e-6 + task_seconds * math.ceil(size / width)


@pytest.mark.parametrize("task_seconds", [0.00001, 0.001, 0.019, 0.021, 0.030, 0.0585, 0.1, 0.17])
def test_a_wide_device_gets_as_much_as_it_runs_side_by_side(task_seconds: float) -> None:
    """0.0585 s for each of a million tasks is what a GPU took: they were once dispatched one at a time, for 17 hours."""
    tasks, width, deadline = 1 << 20, 1 << 15, 0.5
    slices = _drain(Pace(deadline, side_by_side=True), tasks, _wide(task_seconds, width))
    assert max(taken for _, taken in slices) <= deadline
    at_best = task_seconds * tasks / width
    assert sum(taken for _, taken in slices) < 2 * at_best + 20 * (task_seconds + 1e-3)


@pytest.mark.parametrize("task_seconds", [1e-6, 0.001, 0.03, 0.06, 0.2, 0.45])
@pytest.mark.parametrize("side_by_side", [True, False])
def test_a_narrow_device_keeps_the_deadline(task_seconds: float, side_by_side: bool) -> None:
    deadline = 0.5
    pace = Pace(deadline, side_by_side=side_by_side)
    slices = _drain(
        pace, int(60 / task_seconds) if task_seconds > 1e-3 else 5000, lambda first, size: task_seconds * size
    )
    longest = max(taken for _, taken in slices)
    assert longest <= max(deadline * MOST, task_seconds)
    if task_seconds < deadline * AIM / 2 or not side_by_side:
        assert longest <= max(1.01 * deadline * AIM, task_seconds), "ten times the work still fits"


def test_work_that_grows_tenfold_still_fits() -> None:
    deadline = 0.5
    for side_by_side in (True, False):
        pace = Pace(deadline, side_by_side=side_by_side)
        slices = _drain(pace, 20_000, lambda first, size: size * (1e-4 if first < 10_000 else 1e-3))
        assert max(taken for _, taken in slices) <= deadline


def test_small_rounds_do_not_make_large_slices() -> None:
    """A slice that had fewer tasks than it might have had tells nothing about a larger one."""
    pace = Pace(0.5, side_by_side=True)
    for _ in range(100):
        pace.note(10, 1e-4)
    assert pace.size <= 20


def test_long_tasks_after_short_ones() -> None:
    """The device is wide, and what it is given changes: the pace follows, in both directions."""
    deadline, width = 0.5, 4096
    pace = Pace(deadline, side_by_side=True)
    _drain(pace, 1 << 18, _wide(1e-5, width))
    slices = _drain(pace, 1 << 14, _wide(0.05, width))
    assert len(slices) < 60
    slices = _drain(pace, 1 << 18, _wide(1e-5, width))
    assert len(slices) < 120


def test_it_says_what_a_slice_should_take() -> None:
    pace = Pace(0.5, side_by_side=True)
    assert pace.expected_seconds(5) is None
    pace.note(1, 0.06)
    pace.note(2, 0.06)
    assert pace.expected_seconds(1000) == pytest.approx(0.06)
    alone = Pace(0.5)
    alone.note(2, 0.01)
    assert alone.expected_seconds(8) == pytest.approx(0.04)
