"""States in and out of a run: `on_state` and `initial_state`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.checkpoints.files import read_checkpoint
from ...continuous.program import StateProgram
from ...continuous.runner import resume, run
from ...devices.base import Device
from ...errors import ArgumentError
from ...samples.states import COLLATZ, SCRAMBLE
from .common import StrategyPart, check
from .queues import tree

__all__ = ["StateTests"]

_Arrays = dict[str, np.ndarray[Any, Any]]


def _adding(step: int, state: _Arrays | None = None) -> StateProgram:
    return StateProgram(
        "adding",
        coupling="independent",
        state=state or {"x": np.arange(40, dtype="i4"), "seen": np.zeros(40, "i4")},
        scalars={"step": step},
        body="int i = kk_item(); x_next[i] = x[i] + step; seen_next[i] = kk_iteration();",
    )


class StateTests(StrategyPart):
    """`on_state` and `initial_state`."""

    def test_on_state_is_called_after_every_state_iterations(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        for sample in (SCRAMBLE, COLLATZ):
            program = sample.program(sample.size)
            for strategy in self.strategies(device):
                shown: dict[int, _Arrays] = {}
                path = tmp_path / f"{sample.name} {strategy}.kkpt"
                for every, end, expected in ((7, 30, [7, 14, 21, 28]), (5, 40, [35, 40]), (100, 45, [])):
                    shown.clear()
                    run(
                        cache,
                        program,
                        end,
                        strategy,
                        checkpoint=path,
                        resume=True,
                        on_state=shown.__setitem__,
                        state_iterations=every,
                    ).close()
                    assert list(shown) == expected, (strategy, every)
                    for iteration, state in shown.items():
                        check(sample, state, program, iteration)

    def test_on_state_counts_the_rounds_of_a_queue(self, device: Device, cache: ProgramCache) -> None:
        for strategy in self.strategies(device):
            shown: dict[int, _Arrays] = {}
            run(cache, tree(6, 3), None, strategy, on_state=shown.__setitem__, state_iterations=2).close()
            assert [(rounds, int(state["count"].sum())) for rounds, state in shown.items()] == [
                (2, 1 + 3),
                (4, 1 + 3 + 9 + 27),
                (6, 1 + 3 + 9 + 27 + 81 + 243),
            ], strategy

    def test_on_state_and_state_iterations_must_come_together(self, cache: ProgramCache) -> None:
        for options in ({"on_state": print}, {"state_iterations": 5}):
            with pytest.raises(ArgumentError, match="on_state and state_iterations must be given together"):
                run(cache, _adding(1), 3, **options)
        with pytest.raises(ArgumentError, match=r"on_state must be a function of \(iteration, state\), got 3"):
            run(cache, _adding(1), 3, on_state=3, state_iterations=5)  # type: ignore[arg-type]

    def test_a_run_begins_with_initial_state(self, device: Device, cache: ProgramCache, tmp_path: Path) -> None:
        """As arrays of the host or the device from iteration 0, or as a checkpoint from where that is, with other scalars."""
        path = tmp_path / "first.kkpt"
        with run(cache, _adding(1), 10, checkpoint=path) as first:
            found = read_checkpoint(path)
            for strategy in self.strategies(device):
                for beginning in (found.state, first.state):
                    with run(cache, _adding(100), 5, strategy, initial_state=beginning) as done:
                        assert (done.iteration, done.report.iterations) == (5, 5)
                        np.testing.assert_array_equal(done.state["x"].numpy(), np.arange(40) + 10 + 500)
                        assert (done.state["seen"].numpy() == 4).all()
                with run(cache, _adding(100), 15, strategy, initial_state=found) as done:
                    assert (done.iteration, done.report.iterations) == (15, 5)
                    np.testing.assert_array_equal(done.state["x"].numpy(), np.arange(40) + 10 + 500)
                    assert (done.state["seen"].numpy() == 14).all()
        then = tmp_path / "then.kkpt"
        run(cache, _adding(100), 15, checkpoint=then, initial_state=found).close()
        with run(cache, _adding(100), 16, checkpoint=then, initial_state=found, resume=True) as done:
            assert done.report.iterations == 1, "what resume finds comes first"
        with resume(then, cache, _adding(100), 17) as done:
            np.testing.assert_array_equal(done.state["x"].numpy(), np.arange(40) + 10 + 700)

    def test_initial_state_takes_the_tasks_of_a_checkpoint(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        path = tmp_path / "tree.kkpt"
        run(cache, tree(6, 3), 3, checkpoint=path).close()
        for strategy in self.strategies(device):
            with run(cache, tree(6, 3), None, strategy, initial_state=read_checkpoint(path)) as done:
                assert done.state["count"].numpy().tolist()[:7] == [3**k for k in range(6, -1, -1)], strategy

    @pytest.mark.parametrize(
        ("given", "told"),
        [
            ({"x": np.zeros(40, "i4")}, "it lacks seen"),
            ({"x": np.zeros(40, "i4"), "seen": np.zeros(40, "i4"), "y": np.zeros(4)}, "it has y"),
            ({"x": np.zeros(40, "f4"), "seen": np.zeros(40, "i4")}, "'x' of initial_state must be int32.*got float32"),
            ({"x": np.zeros(39, "i4"), "seen": np.zeros(40, "i4")}, r"must have shape \(40,\).*got \(39,\)"),
            (np.zeros(40), "must be a mapping of names to arrays, or a checkpoint.*got ndarray"),
        ],
    )
    def test_initial_state_rejects_arrays_that_do_not_fit(self, cache: ProgramCache, given: Any, told: str) -> None:
        with pytest.raises(ArgumentError, match=told):
            run(cache, _adding(1), 3, initial_state=given)
