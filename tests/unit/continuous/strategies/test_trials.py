"""What auto measures, with a device whose every iteration takes as long as the test says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from kernelkeep.continuous.mailbox import Stopped
from kernelkeep.continuous.session import Session
from kernelkeep.continuous.strategies import trials
from kernelkeep.continuous.strategies.trials import Trial, take_turns

_MICROSECOND = 1e-6


class _Device:
    """Stands for a session and its clock: a launch is enqueued, and takes time when it is waited for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.iteration = 0
        self.stopped = Stopped.NO
        self.stops_at: dict[int, Stopped] = {}
        self.mended: list[int] = []
        self.tried: list[tuple[str, int]] = []  # which way, and how many iterations
        self.late_seconds: dict[int, float] = {}  # by the number of the try: what another process takes of it
        self._enqueued: list[tuple[str, int, float]] = []

    def way(self, name: str, budget: int, seconds: float) -> Callable[[], None]:
        """Enqueues iterations that take so long each."""
        return lambda: self._enqueued.append((name, budget, seconds))

    def synchronize(self) -> None:
        total = sum(budget for _, budget, _ in self._enqueued)
        self.now += sum(budget * seconds for _, budget, seconds in self._enqueued)
        self.now += self.late_seconds.get(len(self.tried), 0.0)
        self.tried.append((self._enqueued[0][0], total))
        self._enqueued.clear()
        self.stopped = next(
            (why for at, why in self.stops_at.items() if self.iteration < at <= self.iteration + total), Stopped.NO
        )
        if self.stopped not in (Stopped.OVERRUN, Stopped.OVERFLOW):
            self.iteration += total

    def mend(self, budget: int) -> None:
        self.mended.append(budget)
        self.stops_at.clear()
        self.stopped = Stopped.NO

    def trial(self, name: str, budget: int, seconds: float, end: int = 1 << 30) -> Trial:
        return Trial(cast(Session, self), self.way(name, budget, seconds), budget, end)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> _Device:
    device = _Device()

    class Clock:
        perf_counter: Any = staticmethod(lambda: device.now)

    monkeypatch.setattr(trials, "time", Clock)
    return device


def test_the_first_launch_does_not_count(device: _Device) -> None:
    device.late_seconds = {0: 5.0}  # the code is loaded
    assert device.trial("loop", 100, _MICROSECOND).grow(100).seconds == pytest.approx(_MICROSECOND)


def test_tries_become_longer_until_they_are_long_enough(device: _Device) -> None:
    device.trial("step", 1, _MICROSECOND).grow(33)
    assert [count for _, count in device.tried] == [1, 1, 2, 4, 8, 16, 32, 64]


def test_long_iterations_are_tried_twice(device: _Device) -> None:
    device.trial("step", 1, 0.5).grow(4096)
    assert [count for _, count in device.tried] == [1, 1]


def test_the_best_try_counts(device: _Device) -> None:
    trial = device.trial("chain", 128, _MICROSECOND).grow(128)
    for number in (2, 4):
        device.late_seconds[number] = 0.2
    take_turns([trial])
    assert len(device.tried) == 5
    assert trial.seconds == pytest.approx(_MICROSECOND)


def test_what_disturbs_for_a_while_does_not_decide(device: _Device) -> None:
    """Another process is busy while the faster way is measured for the first time."""
    slow = device.trial("slow", 128, 2 * _MICROSECOND).grow(128)
    device.late_seconds = {2: 0.01, 3: 0.01}
    fast = device.trial("fast", 128, _MICROSECOND).grow(128)
    assert fast.seconds > slow.seconds
    take_turns([slow, fast])
    assert [name for name, _ in device.tried[4:]] == ["slow", "fast"] * 3
    assert fast.seconds == pytest.approx(slow.seconds / 2)


def test_no_turn_goes_beyond_the_end_of_the_run(device: _Device) -> None:
    trial = device.trial("loop", 100, _MICROSECOND, end=350).grow(100)
    take_turns([trial])
    assert device.iteration == 300


def test_nothing_is_tried_in_a_run_that_has_stopped(device: _Device) -> None:
    device.stops_at = {250: Stopped.BY_CONDITION}
    trial = device.trial("loop", 100, _MICROSECOND).grow(4096)
    take_turns([trial])
    assert [count for _, count in device.tried] == [100, 100, 200]
    assert trial.seconds == pytest.approx(_MICROSECOND)


@pytest.mark.parametrize("why", [Stopped.OVERRUN, Stopped.OVERFLOW])
def test_a_try_that_was_cut_short_is_mended_and_made_again(device: _Device, why: Stopped) -> None:
    device.stops_at = {150: why}
    trial = device.trial("loop", 100, _MICROSECOND).grow(100)
    assert device.mended == [100]
    assert device.iteration == 200
    assert trial.seconds == pytest.approx(_MICROSECOND)
