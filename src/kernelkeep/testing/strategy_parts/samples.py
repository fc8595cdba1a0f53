"""Every sample under every strategy against a loop in NumPy: in one run, stopped and resumed, and in place."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.checkpoints.files import read_checkpoint
from ...continuous.run import Run
from ...continuous.runner import resume, run
from ...devices.base import Device
from ...samples.states import COLLATZ, SCRAMBLE
from ...words import StrategyName
from .common import ALL, SAMPLES, STRATEGIES, StrategyPart, check

__all__ = ["SampleTests"]


class SampleTests(StrategyPart):
    """The same state, whoever computes it and however often it was interrupted."""

    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize("name", ALL)
    def test_every_sample_equals_numpy(self, cache: ProgramCache, name: str, strategy: StrategyName) -> None:
        sample = SAMPLES[name]
        program = sample.program(sample.size)
        with self.run_or_skip(cache, program, sample.iterations, strategy) as done:
            check(sample, done.state, program, sample.iterations)
            assert done.report.strategy == strategy or strategy == "auto"
            assert sample.iterations is None or done.iteration == sample.iterations

    @pytest.mark.parametrize("strategy", ["mega", "buffered"])
    @pytest.mark.parametrize("per_dispatch", [1, 2, 3, 8])
    @pytest.mark.parametrize("name", ALL)
    def test_odd_and_even_numbers_of_iterations_in_a_dispatch_equal_numpy(
        self, cache: ProgramCache, name: str, per_dispatch: int, strategy: StrategyName
    ) -> None:
        sample = SAMPLES[name]
        program = sample.program(sample.size)
        with run(cache, program, sample.iterations, strategy, iterations_per_dispatch=per_dispatch) as done:
            check(sample, done.state, program, sample.iterations)
            if sample.iterations is not None:
                assert done.report.dispatches == -(-sample.iterations // per_dispatch)

    @pytest.mark.parametrize("name", ALL)
    def test_in_place_runs_equal_numpy(self, device: Device, cache: ProgramCache, name: str) -> None:
        sample = SAMPLES[name]
        program = sample.program(sample.size)
        for strategy in self.strategies(device):
            for per_dispatch in (None, 2, 3):
                with run(
                    cache, program, sample.iterations, strategy, in_place=True, iterations_per_dispatch=per_dispatch
                ) as done:
                    check(sample, done.state, program, sample.iterations)

    @pytest.mark.parametrize("name", ALL)
    def test_a_run_resumed_at_twenty_random_points_equals_numpy(
        self, device: Device, cache: ProgramCache, name: str, tmp_path: Path
    ) -> None:
        sample = SAMPLES[name]
        program = sample.program(sample.size)
        end = sample.iterations
        dice = random.Random(name)
        resumed = 0
        for number in range(20):
            path = tmp_path / f"{number}.kkpt"
            strategies = dice.choices(self.strategies(device), k=3)
            options: dict[str, Any] = {
                "iterations_per_dispatch": dice.choice((None, 2, 3, 5)),
                "in_place": dice.random() < 0.3,
            }
            first, second = sorted(dice.choices(range(1, end or 4), k=2))
            told = f"{strategies} at {first} and {second} with {options}"
            with run(cache, program, first, strategies[0], checkpoint=path, **options) as begun:
                assert begun.iteration == first or end is None, told
            with resume(path, cache, program, second, strategies[1], **options) as gone_on:
                check_iterations(gone_on, begun, second, told)
            with resume(path, cache, program, end, strategies[2], **options) as done:
                check_iterations(done, gone_on, end, told)
                resumed += done.report.iterations > 0
                try:
                    check(sample, done.state, program, end)
                except AssertionError as error:
                    error.add_note(told)
                    raise
        assert resumed >= 10, "most were not at their end"

    def test_every_checkpoint_is_the_state_of_the_iteration_that_it_names(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        """Also where the state was downloaded while the next iterations ran."""
        program = SCRAMBLE.program(SCRAMBLE.size)
        end = (
            3000 if device.info.is_gpu else 1000
        )  # a CPU needs longer for an iteration, and NumPy as long for the reference
        before_the_end = 0
        for strategy in self.strategies(device):
            path = tmp_path / f"{strategy}.kkpt"
            with run(
                cache, program, end, strategy, checkpoint=path, checkpoint_iterations=1, keep_checkpoints=end
            ) as done:
                written = done.report.checkpoints
            files = list(tmp_path.glob(f"{strategy}.kkpt*"))
            assert len(files) == written > 0, strategy
            before_the_end += written - 1
            iterations = []
            for file in files:
                found = read_checkpoint(file)
                iterations.append(found.header.iteration)
                check(SCRAMBLE, found.arrays, program, iterations[-1])
            assert max(iterations) == end
            assert len(set(iterations)) >= written - 1, (
                "only the last may be written twice, when it is known to be the last"
            )
        assert before_the_end > 0

    def test_every_state_that_a_condition_sees_is_that_of_its_iteration(
        self, device: Device, cache: ProgramCache
    ) -> None:
        for sample in (SCRAMBLE, COLLATZ):
            program = sample.program(sample.size)
            for strategy in self.strategies(device):
                seen: list[int] = []

                def look(now: Run, seen: list[int] = seen) -> bool:
                    check(sample, now.state, program, now.iteration)  # noqa: B023
                    seen.append(now.iteration)
                    return now.iteration > 700

                with run(cache, program, None, strategy, until=look) as done:
                    assert done.report.stopped == "until"
                    assert done.iteration == seen[-1] > 700
                    check(sample, done.state, program, done.iteration)
                assert seen[0] == 0 and seen == sorted(seen)

    def test_constants_of_another_size_do_not_share_a_result(self, cache: ProgramCache) -> None:
        """Two sizes of one program are one kernel; what differs comes with the launch."""
        for size in (1, 2, 127, 128, 129, 1000):
            program = SCRAMBLE.program(size)
            with run(cache, program, 7, "mega") as done:
                check(SCRAMBLE, done.state, program, 7)


def check_iterations(now: Run, before: Run, end: int | None, told: str) -> None:
    """Each iteration was done once: this run begins where the one before ended."""
    assert now.report.iterations == now.iteration - before.iteration, told
    assert end is None or now.iteration == end or now.report.stopped == "empty", told
    assert now.report.resumed_from is not None
    assert now.report.resumed_from.endswith(f"at iteration {before.iteration:,}"), told
