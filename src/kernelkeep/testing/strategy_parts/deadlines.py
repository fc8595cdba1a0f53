"""How long a dispatch may be: deadlines that hold when the work grows, and loops that a device cuts short."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.checkpoints.files import read_header
from ...continuous.program import StateProgram
from ...continuous.report import DeadlineWarning, RunReport
from ...continuous.run import Run
from ...continuous.runner import resume, run
from ...continuous.session import lost_sessions
from ...devices.base import Device
from ...errors import DeviceError
from ...samples.states import COLLATZ, SCRAMBLE
from ...words import Coupling
from .common import StrategyPart, check, cuts_loops

__all__ = ["DeadlineTests"]

_TENFOLD = """int i = kk_item();
uint v = word[i];
int rounds = kk_iteration() < turn ? few : 10 * few;
for (int k = 0; k < rounds; k++) v = (v ^ (v >> 7)) * 1664525u + 1013904223u;
word_next[i] = v;
count_next[i] = count[i] + 1;"""


def _growing(items: int, few: int, turn: int, coupling: Coupling = "independent") -> StateProgram:
    return StateProgram(
        "growing",
        coupling=coupling,
        state={"word": np.arange(items, dtype="u4"), "count": np.zeros(items, "i4")},
        scalars={"few": few, "turn": turn},
        body=_TENFOLD,
    )


def _busy(tasks: int, steps: int) -> StateProgram:
    return StateProgram(
        "busy",
        coupling="queue",
        state={"visits": np.zeros(64, "i4"), "word": np.zeros(64, "u4")},
        tasks={"number": np.arange(tasks, dtype="i4")},
        scalars={"steps": steps},
        body="""uint v = kk_uint(number);
for (int k = 0; k < steps; k++) v = (v ^ (v >> 7)) * 1664525u + 1013904223u;
kk_atomic_xor(word[number % 64], v);
kk_atomic_add(visits[number % 64], 1);""",
        group=64,
    )


def _chained(items: int, rounds: int) -> np.ndarray[Any, Any]:
    """The words of `items` after so many rounds."""
    v: np.ndarray[Any, Any] = np.arange(items, dtype="u4")
    for _ in range(rounds):
        v = (v ^ (v >> np.uint32(7))) * np.uint32(1664525) + np.uint32(1013904223)
    return v


def _in_time(device: Device, deadline: float, attempt: Callable[[], RunReport]) -> RunReport:
    """The report of a run whose slices kept the deadline. On a CPU, of which others may take their share, one of three does."""
    for _ in range(1 if device.info.is_gpu else 3):
        report = attempt()
        assert report.longest_slice_seconds is not None
        if report.longest_slice_seconds <= 1.1 * deadline:
            return report
    pytest.fail(str(report))


class DeadlineTests(StrategyPart):
    """Dispatches that end in time."""

    def test_a_deadline_holds_when_the_work_grows_tenfold(self, device: Device, cache: ProgramCache) -> None:
        deadline = 1.0
        items = 1 << 20 if device.info.is_gpu else 1 << 15
        never = _growing(items, 100, 2**31 - 1)
        run(cache, never, 3, "checkpointed").close()  # compiled
        # How many iterations this device does in a while, the last slices of them at full length.
        begun = time.perf_counter()

        def a_while_passed(_: Run) -> bool:
            return time.perf_counter() - begun > 0.5 * deadline

        with run(cache, never, None, "checkpointed", deadline_seconds=deadline, until=a_while_passed) as measured:
            turn, seconds = measured.iteration, time.perf_counter() - begun
        assert seconds / turn < deadline / 30, "an iteration is far shorter than the deadline"
        total = turn + 2 * turn // 5  # a slice that did not shrink would take far longer than the deadline
        growing = _growing(items, 100, turn)

        def attempt() -> RunReport:
            with run(cache, growing, total, "checkpointed", deadline_seconds=deadline) as done:
                assert (done.state["count"].numpy() == total).all()
                return done.report

        assert _in_time(device, deadline, attempt).dispatches > 4, "the work is worth several slices"

    def test_a_long_round_of_a_queue_is_divided(self, device: Device, cache: ProgramCache) -> None:
        """A round of many tasks takes several times the deadline, a task only a small part of it."""
        deadline = 0.12 if cuts_loops(device) else 0.5  # the loops of such a device cannot be made longer
        tasks = 1 << 20 if device.info.is_gpu else 1 << 15
        run(cache, _busy(64, 1), None, "redispatch").close()  # compiled
        steps = 1000
        for _ in range(8):
            with run(cache, _busy(tasks, steps), None, "redispatch") as whole:
                taken = whole.report.seconds
            if taken > 2.5 * deadline:
                break
            most = 60_000 if cuts_loops(device) else 10**7
            steps = min(most, int(steps * max(1.5, min(20, 4 * deadline / taken))))
        assert taken > 2.5 * deadline, "the device is too fast to be true"

        def attempt() -> RunReport:
            with run(cache, _busy(tasks, steps), None, "checkpointed", deadline_seconds=deadline) as done:
                assert (done.state["visits"].numpy() == tasks // 64).all()
                return done.report

        assert _in_time(device, deadline, attempt).tasks_done == tasks

    @pytest.mark.parametrize("coupling", ["independent", "neighbours"])
    def test_an_iteration_longer_than_the_deadline_is_divided(
        self, device: Device, cache: ProgramCache, coupling: Coupling
    ) -> None:
        """By items: the last part commits it. Steering, and elements that the body leaves unwritten, work the same."""
        items = 1 << 23 if device.info.is_gpu else 1 << 12  # far more than run side by side
        few = 100 if cuts_loops(device) else 3000
        program = _growing(items, few, 2**31 - 1, coupling)
        run(cache, program, 2, "checkpointed").close()  # compiled
        deadline = 0.3
        for _ in range(12):
            with run(cache, program, 1, "redispatch") as whole:
                taken, expected = whole.report.seconds, whole.state["word"].numpy()
            if taken > 2 * deadline or (few >= 60_000 and cuts_loops(device)):
                break
            few = int(few * max(1.5, min(8.0, 2.5 * deadline / taken)))
            few = min(few, 60_000) if cuts_loops(device) else few
            program = _growing(items, few, 2**31 - 1, coupling)
        deadline = min(deadline, taken / 2)

        def attempt() -> RunReport:
            with run(cache, program, 1, "checkpointed", deadline_seconds=deadline) as done:
                np.testing.assert_array_equal(done.state["word"].numpy(), expected)
                return done.report

        assert _in_time(device, deadline, attempt).dispatches > 3

    def test_iterations_in_parts_equal_numpy(self, device: Device, cache: ProgramCache, tmp_path: Path) -> None:
        """With a deadline that nothing can keep, every iteration is divided, and computes the same."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeadlineWarning)
            for sample in (SCRAMBLE, COLLATZ):
                program = sample.program(sample.size)
                path = tmp_path / f"{sample.name}.kkpt"
                options: dict[str, Any] = {"deadline_seconds": 1e-7, "checkpoint": path, "resume": True}
                for end in (1, 4):
                    with run(cache, program, end, "checkpointed", **options) as done:
                        check(sample, done.state, program, end)
                        assert done.report.dispatches >= sample.size * done.report.iterations

    def test_tasks_longer_than_the_aim_are_not_dispatched_one_by_one(self, device: Device, cache: ProgramCache) -> None:
        """A task takes a tenth of the deadline, and a device may run thousands in that time."""
        steps = 50_000 if cuts_loops(device) else 10**6 if device.info.is_gpu else 3 * 10**6
        tasks = 1 << 12 if device.info.is_gpu else 256 if cuts_loops(device) else 48
        run(cache, _busy(1, 1), None, "checkpointed").close()  # compiled
        with run(cache, _busy(1, steps), None, "checkpointed") as one:
            assert one.report.longest_slice_seconds is not None
            deadline = 10 * one.report.longest_slice_seconds
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeadlineWarning)  # a few milliseconds: another process may take as much
            done = run(cache, _busy(tasks, steps), None, "checkpointed", deadline_seconds=deadline)
        with done:
            assert done.report.tasks_done == tasks
            assert done.state["visits"].numpy().sum() == tasks
            # A slice of a few milliseconds that another process interrupts is followed by smaller ones.
            several = tasks / 8 if device.info.is_gpu else tasks / 2 if cuts_loops(device) else 0.9 * tasks
            assert done.report.dispatches < several, str(done.report)

    def test_a_dispatch_that_outlives_its_deadline_is_reported(
        self, device: Device, cache: ProgramCache, tmp_path: Path
    ) -> None:
        """The warning comes while it runs, where the driver allows it; it is given up only after `hang_seconds`."""
        steps = 60_000 if cuts_loops(device) else 3 * 10**7
        run(cache, _busy(1, 1), None, "checkpointed").close()  # compiled
        with pytest.warns(DeadlineWarning) as told:
            done = run(cache, _busy(2, steps), None, "checkpointed", deadline_seconds=1e-4)
        assert (done.report.tasks_done, done.report.late_slices) == (2, 2)
        assert "2 outlived the deadline" in str(done.report)
        done.close()
        sentence = str(told[0].message)
        assert told[0].filename == __file__
        for part in ("busy", device.spec, "1 task ", "deadline_seconds is 0.0001", "Let a task do less"):
            assert part in sentence, sentence
        if cuts_loops(device):
            return  # the driver's call returns only when the launch has ended
        assert "still runs after" in sentence and "hang_seconds" in sentence
        path = tmp_path / "given up.kkpt"
        run(cache, _growing(8, steps, 1), 1, "redispatch", checkpoint=path).close()
        late = _growing(8, steps, 1)
        with (
            pytest.warns(DeadlineWarning, match="an item do less"),
            pytest.raises(DeviceError, match=r"1 item .*given up after.*checkpoint file is good.*hang_seconds"),
        ):
            resume(path, cache, late, 2, "checkpointed", deadline_seconds=0.01, hang_seconds=0.02)
        assert read_header(path).iteration == 1
        # It ends some time, and a later run frees what this one left behind.
        give_up = time.perf_counter() + 60
        while lost_sessions and time.perf_counter() < give_up:
            time.sleep(0.05)
            with run(cache, _busy(1, 1), None) as following:
                assert following.report.tasks_done == 1
        assert not lost_sessions

    def test_loops_that_the_device_cuts_short_are_run_again_in_smaller_slices(
        self, device: Device, cache: ProgramCache
    ) -> None:
        """Software OpenGL ends loops after 65,535 rounds: a shorter slice is run again, and the result is correct."""
        iterations = 70_003
        words = SCRAMBLE.program(13)
        for program in (words, _growing(8, 1, 2**31 - 1)):
            expected = SCRAMBLE.reference(words, iterations)["word"] if program is words else _chained(8, iterations)
            for in_place in (False, True):
                with run(
                    cache, program, iterations, "mega", iterations_per_dispatch=iterations - 1, in_place=in_place
                ) as done:
                    np.testing.assert_array_equal(done.state["word"].numpy(), expected)
                    assert (done.state["count"].numpy() == iterations).all()
                    assert (done.iteration, done.report.iterations) == (iterations, iterations)
                    assert done.report.overruns >= 1 if cuts_loops(device) else done.report.overruns == 0
                    assert done.report.dispatches >= 2

    def test_an_iteration_that_the_device_cannot_finish_raises(self, device: Device, cache: ProgramCache) -> None:
        program = _growing(8, 70_000, 2**31 - 1)
        if cuts_loops(device):
            for strategy in self.strategies(device):
                with pytest.raises(DeviceError, match=r"one iteration of growing.*would be wrong"):
                    run(cache, program, 3, strategy)
            return
        expected = _chained(8, 70_000)
        for strategy in self.strategies(device):
            with run(cache, program, 1, strategy) as done:
                np.testing.assert_array_equal(done.state["word"].numpy(), expected)
