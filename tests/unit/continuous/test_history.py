"""How a run went over time: bounded, in order, and in seconds since it began."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.history import RunHistory, Thinned, gaps_over_time


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_a_thinned_list_stays_short_and_covers_everything(count: int) -> None:
    kept: Thinned[int] = Thinned(8)
    for number in range(count):
        kept.add(number)
    found = kept.entries()
    assert len(found) == min(count, len(found)) <= 8
    assert found == sorted(found)
    assert count == 0 or found[0] == 0
    assert len(found) < 2 or count - found[-1] <= 2 * (found[1] - found[0])


def test_gaps_become_one_entry_for_each_interval() -> None:
    assert gaps_over_time([], 5.0) == ()
    (one,) = gaps_over_time([(7.0, 0.5)], 5.0)
    assert one == (2.0, 0.5, 0.5)
    found = gaps_over_time(((10 + i * 1e-3, (i % 10) * 1e-6) for i in range(6000)), 10.0)
    assert 100 <= len(found) <= 120
    assert [one.seconds for one in found] == sorted(one.seconds for one in found)
    assert all(one.longest == 9e-6 for one in found)
    assert all(3e-6 <= one.middle <= 6e-6 for one in found)


@pytest.mark.opencl
def test_a_report_tells_how_the_run_went(tmp_path: Path) -> None:
    program = kk.StateProgram(
        "count",
        coupling="independent",
        items=64,
        state={"u": np.zeros(64, "f4")},
        body="int i = kk_item(); u_next[i] = u[i] + 1.0f;",
    )
    with kk.open_device("opencl") as device, kk.ProgramCache(device, cache_dir=tmp_path / "cache") as cache:
        with kk.run(cache, program, iterations=100, strategy="redispatch", checkpoint=tmp_path / "count.kkpt") as run:
            report = run.report
    history = report.history
    assert history.progress[0] == (0.0, 0)
    assert history.progress[-1].iteration == 100
    seconds = [one.seconds for one in history.progress]
    assert seconds == sorted(seconds) and seconds[-1] <= report.seconds + 1
    assert len(history.checkpoints) == report.checkpoints
    for one in history.checkpoints:
        assert one.ok and 0 <= one.seconds <= one.end_seconds <= report.seconds
    assert history.checkpoints[-1].iteration == 100
    assert "history" not in repr(report)
    assert RunHistory() == RunHistory(())
