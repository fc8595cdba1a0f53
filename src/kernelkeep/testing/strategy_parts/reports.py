"""What a run reports: its report, its progress, and its repr."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.checkpoints.files import read_header
from ...continuous.report import RunReport
from ...continuous.run import Run
from ...continuous.runner import resume, run
from ...devices.base import Device
from ...errors import DeviceError
from ...progress.progress import Progress
from ...samples.states import COLLATZ, HEAT, SCRAMBLE, TILES
from .common import StrategyPart, check

__all__ = ["ReportTests"]


def _check_figures(report: RunReport) -> None:
    """Check what holds for every report."""
    assert report.seconds > 0 and report.reason and report.stopped
    assert 0 <= report.iterations <= report.iteration
    for figure in (report.gap_p50_seconds, report.gap_p99_seconds, report.host_seconds_per_dispatch):
        assert figure is None or (math.isfinite(figure) and 0 <= figure <= report.seconds)
    assert report.busy_share is None or 0 <= report.busy_share <= 1
    assert report.longest_slice_seconds is None or 0 < report.longest_slice_seconds <= report.seconds
    assert report.gaps == (report.gap_p50_seconds, report.gap_p99_seconds)
    if report.gap_p50_seconds is not None and report.gap_p99_seconds is not None:
        assert report.gap_p50_seconds <= report.gap_p99_seconds
    assert report.checkpoint_failures == 0
    text = str(report)
    assert report.program in text and report.device in text and report.strategy in text and report.reason in text
    assert f"{report.iterations:,} iterations" in text and f"{report.dispatches:,}" in text


def _measured(reason: str, *more: str) -> bool:
    """Whether a reason has both times of an iteration, or the one that was enough: on a busy machine it may take milliseconds."""
    wanted = ("µs in dispatches of its own", "µs inside a dispatch", *more)
    return all(one in reason for one in wanted) or "ms, beside which a dispatch costs nothing" in reason


class ReportTests(StrategyPart):
    """A report states exactly what was done."""

    def test_the_report_counts_iterations_and_dispatches_of_each_strategy(
        self, device: Device, cache: ProgramCache
    ) -> None:
        program = SCRAMBLE.program(SCRAMBLE.size)
        for strategy in self.strategies(device):
            with run(cache, program, 400, strategy) as done:
                report = done.report
                _check_figures(report)
                assert (report.program, report.device) == ("scramble", device.spec)
                assert (report.iterations, report.iteration, report.stopped) == (400, 400, "done")
                assert report.resumed_from is None
                assert (report.checkpoints, report.checkpoint_bytes, report.checkpoint_seconds) == (0, 0, 0)
                assert (report.tasks_done, report.overruns, report.queue_grown) == (0, 0, 0)
                if strategy == "auto":
                    assert report.strategy in ("buffered", "mega", "checkpointed") and "asked for" not in report.reason
                else:
                    assert (report.strategy, report.reason) == (strategy, "asked for")
                if strategy in ("redispatch", "buffered"):
                    assert report.dispatches == 400
                    if device.capabilities.timestamps:
                        assert report.gap_p50_seconds is not None and report.busy_share is not None
                    assert report.host_seconds_per_dispatch is not None
                if strategy == "mega":
                    assert 1 < report.dispatches < 200, "many iterations in a dispatch"
                if strategy in ("checkpointed", "supervised"):
                    assert report.longest_slice_seconds is not None

    def test_auto_reports_what_it_measured(self, cache: ProgramCache, tmp_path: Path) -> None:
        program = SCRAMBLE.program(SCRAMBLE.size)
        with run(cache, program, 400) as plain, run(cache, program, 400, checkpoint=tmp_path / "a.kkpt") as kept:
            assert _measured(plain.report.reason) and "checkpoint" not in plain.report.reason
            assert _measured(kept.report.reason)
            assert 0 < kept.report.checkpoint_wait_seconds < kept.report.seconds
            check(SCRAMBLE, kept.state, program, 400)

    def test_the_report_of_a_queue_counts_tasks(self, device: Device, cache: ProgramCache) -> None:
        program = TILES.program(TILES.size)
        tasks = int(TILES.reference(program, None)["tally"].sum())
        for strategy in self.strategies(device):
            with run(cache, program, None, strategy) as done:
                _check_figures(done.report)
                # Tasks outside the picture are counted nowhere else.
                assert done.report.tasks_done >= tasks > 100
                assert done.report.tasks_done == 9 + 4 * int(done.state["tally"].numpy()[2])
                assert done.report.stopped == "empty"
                assert f"{done.report.tasks_done:,}" in str(done.report)

    def test_the_report_counts_checkpoints(self, device: Device, cache: ProgramCache, tmp_path: Path) -> None:
        program = HEAT.program(HEAT.size)
        for strategy in self.strategies(device):
            path = tmp_path / f"{strategy}.kkpt"
            with run(cache, program, 50, strategy, checkpoint=path) as done:
                assert done.report.checkpoints == 1, "the one at the end"
                assert done.report.checkpoint_bytes == path.stat().st_size
                assert 0 < done.report.checkpoint_seconds < done.report.seconds
            with resume(path, cache, program, 2000, strategy, checkpoint_iterations=5, keep_checkpoints=3) as done:
                _check_figures(done.report)
                assert done.report.resumed_from == f"{path} at iteration 50"
                assert (done.report.iterations, done.report.iteration) == (1950, 2000)
                assert done.report.checkpoints >= 1
                assert f"{done.report.checkpoints} written" in str(done.report)
                assert str(path) in str(done.report)
            files = sorted(tmp_path.glob(f"{strategy}.kkpt*"))
            assert len(files) == min(3, 1 + done.report.checkpoints)
            header = read_header(path)
            assert (header.iteration, header.program, header.device) == (2000, "heat", device.spec)
            assert header.program_digest == program.program_digest

    def test_checkpoints_are_written_by_time(self, cache: ProgramCache, tmp_path: Path) -> None:
        program = SCRAMBLE.program(SCRAMBLE.size)
        with run(
            cache, program, 3000, "redispatch", checkpoint=tmp_path / "first.kkpt", checkpoint_every=1000.0
        ) as done:
            assert done.report.checkpoints == 1

        path = tmp_path / "by-time.kkpt"

        def several_are_written(_: Run) -> bool:
            return len(list(tmp_path.glob("by-time.kkpt*"))) >= 4

        with run(
            cache,
            program,
            None,
            "redispatch",
            until=several_are_written,
            checkpoint=path,
            checkpoint_every=0.001,
            keep_checkpoints=9,
        ) as done:
            assert done.report.checkpoints >= 3
            iteration = done.iteration
        assert read_header(path).iteration == iteration

    def test_on_progress_sees_growing_iterations(self, device: Device, cache: ProgramCache) -> None:
        for sample, iterations in ((SCRAMBLE, 2000), (TILES, None)):
            program = sample.program(sample.size)
            for strategy in self.strategies(device):
                heard: list[Progress] = []
                with run(cache, program, iterations, strategy, on_progress=heard.append) as done:
                    check(sample, done.state, program, iterations)
                    counts = [step.iteration for step in heard]
                    assert counts == sorted(counts) and len(set(counts)) > (
                        strategy != "auto"
                    )  # it may measure to the end
                    assert counts[-1] == done.iteration
                    assert all(step.iterations == iterations for step in heard)
                    times = [step.seconds for step in heard]
                    assert times == sorted(times) and 0 < times[-1] <= done.report.seconds
                    assert heard[-1].pending_tasks == 0

    def test_the_progress_bar_goes_to_standard_error(
        self, cache: ProgramCache, capfd: pytest.CaptureFixture[str]
    ) -> None:
        program = SCRAMBLE.program(SCRAMBLE.size)
        with run(cache, program, 300, "redispatch", progress=True) as done:
            check(SCRAMBLE, done.state, program, 300)
        assert capfd.readouterr().out == ""

    def test_an_error_of_on_progress_ends_the_run(self, cache: ProgramCache, tmp_path: Path) -> None:
        program = SCRAMBLE.program(SCRAMBLE.size)
        path = tmp_path / "raised.kkpt"

        def fail(step: Progress) -> None:
            if path.exists():
                raise LookupError("enough")

        with pytest.raises(LookupError, match="enough"):
            run(cache, program, 10**9, "redispatch", on_progress=fail, checkpoint=path, checkpoint_iterations=10)
        # The file that was written is good, and the cache and the device still work.
        middle = read_header(path).iteration
        assert middle >= 10
        with resume(path, cache, program, middle + 5, "mega") as done:
            check(SCRAMBLE, done.state, program, middle + 5)

    def test_the_repr_of_a_run_names_program_iteration_and_device(self, device: Device, cache: ProgramCache) -> None:
        program = HEAT.program(HEAT.size)
        with run(cache, program, 3, "redispatch") as done:
            assert repr(done) == f"<Run of heat at iteration 3 on {device.spec}>"
            assert done.program is program
            assert set(done.state) == {"u"}
            u = done.state["u"]
        with pytest.raises(DeviceError):
            u.numpy()

    def test_auto_reports_why_it_chose(self, cache: ProgramCache) -> None:
        """The reason has what was measured, or why nothing was."""
        reasons: dict[str, Any] = {}
        for sample, iterations in ((SCRAMBLE, 100), (SCRAMBLE, 5000), (COLLATZ, 5000)):
            program = sample.program(sample.size)
            with run(cache, program, iterations) as done:
                reasons[f"{sample.name} {iterations}"] = done.report.reason
                check(sample, done.state, program, iterations)
        assert "too few to measure" in reasons["scramble 100"]
        assert _measured(reasons["scramble 5000"])
        assert _measured(reasons["collatz 5000"])
