"""What `kernelkeep bench` measures."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelkeep.observe import bench
from kernelkeep.observe.bench import bench_devices


def test_every_figure_is_there_and_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_ROUNDS", 5)
    (found,) = bench_devices(["reference"], programs=2, cache_dir=tmp_path)
    assert found.device == "reference:0"
    assert [figure.name for figure in found.figures] == [
        "compile and first result",
        "memory hit and first result",
        "memory hit alone",
        "disk hit and first result",
        "launch",
        "prepared launch",
        "prepared launch and wait",
        "executor, 4.0 KiB",
    ]
    for figure in found.figures:
        assert 0 < figure.low_seconds <= figure.seconds <= figure.high_seconds
    assert [figure.samples for figure in found.figures] == [2, 2, 5, 2, 5, 5, 5, 5]
    assert not list(tmp_path.iterdir())
