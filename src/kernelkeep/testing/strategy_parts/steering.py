"""Iterations that stop the run or change its phase; and conditions, on the device and on the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.checkpoints.files import read_checkpoint, read_header
from ...continuous.program import StateProgram
from ...continuous.run import Run
from ...continuous.runner import resume, run
from ...devices.base import Device
from ...errors import ArgumentError
from ...samples.states import COLLATZ, SCRAMBLE, TILES
from ...words import Coupling, StrategyName
from .common import StrategyPart, check

__all__ = ["SteeringTests"]

_ITEMS = 300
_LAST = 41  # the iteration that asks to stop

_AT_37 = "kk_item() == 5 && count_next[kk_item()] == 37u"

# What each item does depends on the phase, so a change that comes early, late or not at all shows in every word.
_PHASES = """int i = kk_item();
value_next[i] = value[i] * 3u + kk_uint(kk_phase() * 7 + i);
phases_next[i] = phases[i] * 10 + kk_phase();
if (phases[i] > 99999) phases_next[i] = kk_phase();
if (i == 7 && kk_iteration() == 4) kk_set_phase(1);
if (i == 0 && kk_iteration() % 12 == 11) kk_set_phase(kk_phase() + 2);
if (i == kk_items() - 1 && kk_iteration() == last) kk_stop();"""


def _phases(coupling: Coupling = "neighbours") -> StateProgram:
    state = {"value": np.arange(_ITEMS, dtype="u4"), "phases": np.zeros(_ITEMS, "i4")}
    return StateProgram("phases", coupling=coupling, state=state, scalars={"last": _LAST}, body=_PHASES)


def _phases_reference(iterations: int) -> tuple[dict[str, Any], int]:
    value, phases, phase = np.arange(_ITEMS, dtype="u4"), np.zeros(_ITEMS, "i4"), 0
    for iteration in range(iterations):
        value = value * np.uint32(3) + (phase * 7 + np.arange(_ITEMS)).astype("u4")
        phases = np.where(phases > 99999, phase, phases * 10 + phase).astype("i4")
        if iteration == 4:
            phase = 1
        if iteration % 12 == 11:
            phase += 2
    return {"value": value, "phases": phases}, phase


def _check_phases(now: Run, iterations: int) -> None:
    expected, phase = _phases_reference(iterations)
    assert (now.iteration, now.phase) == (iterations, phase)
    for key, array in expected.items():
        np.testing.assert_array_equal(now.state[key].numpy(), array, err_msg=key)


class SteeringTests(StrategyPart):
    """The run ends exactly where an iteration asked for it, and never runs ahead of a phase."""

    def ways(self, device: Device) -> Iterator[tuple[StrategyName, int | None]]:
        """Every strategy, with dispatches that end before, at and after the iteration that asks to stop."""
        for strategy in self.strategies(device):
            sizes = (None, 2, 3, 6, 7, 64) if strategy in ("mega", "buffered") else (None,)
            yield from ((strategy, size) for size in sizes)

    @pytest.mark.parametrize("coupling", ["neighbours", "independent"])
    def test_a_body_that_changes_the_phase_and_stops(
        self, device: Device, cache: ProgramCache, coupling: Coupling
    ) -> None:
        program = _phases(coupling)
        assert program.steers
        for strategy, size in self.ways(device):
            with run(cache, program, None, strategy, iterations_per_dispatch=size) as done:
                assert done.report.stopped == "body", (strategy, size)
                _check_phases(done, _LAST + 1)

    def test_a_run_ends_at_its_iterations_before_the_body_stops_it(self, device: Device, cache: ProgramCache) -> None:
        program = _phases()
        for strategy, size in self.ways(device):
            for iterations in (1, 11, 12, 13, _LAST, _LAST + 1):
                with run(cache, program, iterations, strategy, iterations_per_dispatch=size) as done:
                    _check_phases(done, iterations)
                    stopped = "body" if iterations == _LAST + 1 else "done"
                    assert done.report.stopped == stopped, (strategy, size, iterations)

    def test_an_until_function_steers_the_run(self, device: Device, cache: ProgramCache, tmp_path: Path) -> None:
        """What it writes holds from the very next iteration on, in every copy of the state, and is in the checkpoint."""
        body = "int i = kk_item(); sum_next[i] = sum[i] * 3u + wheel[0];"
        state = {"sum": np.arange(_ITEMS, dtype="u4"), "wheel": np.array([1], "u4")}
        program = StateProgram("steered", coupling="neighbours", items=_ITEMS, state=state, body=body)
        expected = np.arange(_ITEMS, dtype="u4")
        for iteration in range(_LAST):
            expected = expected * np.uint32(3) + np.uint32(iteration // 5 * 7 + 1)

        def steer(now: Run) -> bool:
            now.steer(wheel=[now.iteration // 5 * 7 + 1])
            return False

        path = tmp_path / "steered.kkpt"
        for strategy in self.strategies(device):
            # Dispatches end at multiples of five, where on_state is called, and the function is called after each.
            stops: dict[str, Any] = {"on_state": lambda *_: None, "state_iterations": 5, "checkpoint": path}
            with run(cache, program, _LAST, strategy, until=steer, resume=False, **stops) as done:
                np.testing.assert_array_equal(done.state["sum"].numpy(), expected, err_msg=strategy)
                with pytest.raises(ArgumentError, match="the run is over"):
                    done.steer(wheel=[1])
            assert read_checkpoint(path).state["wheel"] == _LAST // 5 * 7 + 1

    def test_what_cannot_be_steered_is_said(self, device: Device, cache: ProgramCache) -> None:
        def steer(now: Run) -> bool:
            with pytest.raises(ArgumentError, match="no array 'wheel'"):
                now.steer(wheel=[1])
            with pytest.raises(ArgumentError):
                now.steer(value=[1])
            return True

        run(cache, _phases(), 5, until=steer).close()

    def test_the_phase_is_part_of_the_checkpoint(self, device: Device, cache: ProgramCache, tmp_path: Path) -> None:
        program = _phases()
        path = tmp_path / "phases.kkpt"
        for first in self.strategies(device):
            for middle in (5, 12, 30):
                run(cache, program, middle, first, checkpoint=path, resume=False).close()
                assert read_header(path).phase == _phases_reference(middle)[1]
                for then in self.strategies(device):
                    with resume(path, cache, program, None, then, checkpoint=None) as done:
                        _check_phases(done, _LAST + 1)

    def test_resuming_a_run_that_the_body_stopped_does_nothing(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        """A worker may die between its last checkpoint and its return: the next one must not compute further."""
        program = _phases()
        path = tmp_path / "over.kkpt"
        run(cache, program, None, "redispatch", checkpoint=path).close()
        for strategy in self.strategies(device):
            with resume(path, cache, program, _LAST + 50, strategy) as again:
                _check_phases(again, _LAST + 1)
                assert (again.report.iterations, again.report.dispatches) == (0, 0)
                assert again.report.stopped == "body"

    def test_a_condition_in_c_ends_the_run_at_its_iteration(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        for sample, condition in (
            (SCRAMBLE, _AT_37),
            (
                COLLATZ,
                "steps_next[kk_item()] >= 100",
            ),  # of many items, in one iteration or another: the first one counts
        ):
            program = sample.program(sample.size)
            if sample is SCRAMBLE:
                expected = 37
            else:
                expected = next(k for k in range(1, 99) if (sample.reference(program, k)["steps"] >= 100).any())
            for strategy, size in self.ways(device):
                with run(cache, program, None, strategy, until=condition, iterations_per_dispatch=size) as done:
                    assert done.iteration == expected, (sample.name, strategy, size)
                    assert done.report.stopped == "until"
                    check(sample, done.state, program, expected)
            path = tmp_path / f"{sample.name}.kkpt"
            with self.run_in_two(
                cache,
                program,
                path,
                expected // 2,
                None,
                "buffered",
                "mega",
                until=condition,
                iterations_per_dispatch=2,
            ) as resumed:
                assert resumed.iteration == expected
                check(sample, resumed.state, program, expected)

    def test_a_condition_is_checked_wherever_the_body_returns(self, device: Device, cache: ProgramCache) -> None:
        body = "int i = kk_item();\nx_next[i] = x[i] + i;\nif (i > 0) return;\nx_next[i] = x[i] + 1;"
        program = StateProgram("early", coupling="neighbours", state={"x": np.zeros(50, "i4")}, body=body)
        for strategy, size in self.ways(device):
            with run(
                cache, program, None, strategy, until="x_next[kk_item()] >= 49 * 7", iterations_per_dispatch=size
            ) as done:
                assert done.iteration == 7, (strategy, size)
                assert done.state["x"].numpy()[1:].tolist() == [7 * i for i in range(1, 50)]

    def test_a_run_that_a_condition_ended_can_be_resumed(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        program = SCRAMBLE.program(SCRAMBLE.size)
        path = tmp_path / "on.kkpt"
        for strategy in self.strategies(device):
            with run(cache, program, None, strategy, until=_AT_37, checkpoint=path, resume=False) as begun:
                assert begun.iteration == 37
            with resume(path, cache, program, 60, strategy, until=_AT_37, checkpoint=None) as further:
                assert (further.iteration, further.report.stopped) == (60, "done"), "it held once"
                check(SCRAMBLE, further.state, program, 60)
            with resume(path, cache, program, 40, strategy) as done:
                assert (done.iteration, done.report.iterations, done.report.stopped) == (40, 3, "done")
                check(SCRAMBLE, done.state, program, 40)

    def test_a_function_ends_the_run(self, device: Device, cache: ProgramCache, tmp_path: Path) -> None:
        program = COLLATZ.program(COLLATZ.size)
        asked: list[int] = []

        def all_arrived(now: Run) -> bool:
            asked.append(now.iteration)
            with pytest.raises(ArgumentError, match="not over"):
                _ = now.report
            return bool((now.state["value"].numpy() == 1).all())

        for strategy in self.strategies(device):
            path = tmp_path / f"{strategy}.kkpt"
            with run(cache, program, None, strategy, until=all_arrived, checkpoint=path) as done:
                assert done.report.stopped == "until"
                assert done.iteration == asked[-1]
                check(COLLATZ, done.state, program, done.iteration)
                end = done.iteration
            with resume(path, cache, program, None, strategy, until=all_arrived) as again:
                assert (again.iteration, again.report.iterations, again.report.stopped) == (end, 0, "until")

    def test_zero_iterations_leave_the_initial_state(self, device: Device, cache: ProgramCache) -> None:
        for sample in (SCRAMBLE, TILES):
            program = sample.program(sample.size)
            for strategy in self.strategies(device):
                with run(cache, program, 0, strategy) as done:
                    assert (done.iteration, done.report.iterations, done.report.dispatches) == (0, 0, 0)
                    assert done.report.reason
                    for key, array in program.state.items():
                        np.testing.assert_array_equal(done.state[key].numpy(), array)

    def test_resuming_what_is_done_does_nothing(self, device: Device, cache: ProgramCache, tmp_path: Path) -> None:
        for sample in (SCRAMBLE, TILES):
            program = sample.program(sample.size)
            path = tmp_path / f"{sample.name}.kkpt"
            with run(cache, program, sample.iterations, "buffered", checkpoint=path) as first:
                end = first.iteration
            for strategy in self.strategies(device):
                for iterations in {sample.iterations, end, 1}:
                    with resume(path, cache, program, iterations, strategy) as again:
                        assert (again.iteration, again.report.iterations) == (end, 0)
                        assert again.report.dispatches == 0
                        check(sample, again.state, program, sample.iterations)
