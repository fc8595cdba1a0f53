"""How often a run makes checkpoints: as asked, unless it would wait for them too much of its time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.continuous.checkpoints.snapshot import Snapshots
from kernelkeep.continuous.checkpoints.writer import CheckpointWriter

PROGRAM = kk.StateProgram(
    "grow",
    coupling="independent",
    items=64,
    state={"u": np.zeros(64, "i4")},
    body="u_next[kk_item()] = u[kk_item()] + 1;",
)


def checkpoints_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told_seconds: float, **options: Any
) -> tuple[int, float]:
    """How many checkpoints there are in twenty turns, each of which takes so long by what the snapshots tell."""
    take = Snapshots.take

    def tell(self: Snapshots, *arguments: Any, **keywords: Any) -> float:
        take(self, *arguments, **keywords)
        return told_seconds

    monkeypatch.setattr(Snapshots, "take", tell)
    monkeypatch.setattr(CheckpointWriter, "busy", property(lambda self: self.flush() is None))  # no turn is left out
    with kk.open_device("opencl") as device, kk.ProgramCache(device, tmp_path / "cache") as cache:
        run = kk.run(
            cache, PROGRAM, 200, "redispatch", checkpoint=tmp_path / "x.kkpt",
            on_state=lambda iteration, state: None, state_iterations=10, **options,
        )  # fmt: skip
        return run.report.checkpoints, run.report.checkpoint_wait_seconds


def test_checkpoints_are_as_frequent_as_asked_where_they_cost_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, waited = checkpoints_of_a_run(tmp_path, monkeypatch, 0.0, checkpoint_every=1e-9)
    assert count > 15 and waited == 0


def test_there_are_fewer_where_the_run_would_wait_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, waited = checkpoints_of_a_run(tmp_path, monkeypatch, 1000.0, checkpoint_every=1e-9)
    assert (count, waited) == (2, 2000.0), "the first one, and the one at the end"


def test_checkpoints_after_so_many_iterations_are_always_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, _ = checkpoints_of_a_run(tmp_path, monkeypatch, 1000.0, checkpoint_every=None, checkpoint_iterations=20)
    assert count == 10, "the last one is the one at the end"
