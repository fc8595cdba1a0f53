"""`kernelkeep checkpoint show` as a person runs it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kernelkeep.continuous.checkpoints.checkpoint import Checkpoint
from kernelkeep.continuous.checkpoints.files import write_checkpoint
from kernelkeep.continuous.checkpoints.header import CheckpointHeader, ScalarValue

Command = Callable[..., subprocess.CompletedProcess[str]]


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("kernelkeep: ") and done.stderr.count("\n") == 1
    return done.stderr


@pytest.fixture
def path(tmp_path: Path) -> Path:
    for iteration in (1000, 2000):
        header = CheckpointHeader(
            program="heat [2D]",
            program_digest="ab" * 32,
            layout_digest="cd" * 32,
            coupling="neighbours",
            items=4000,
            iteration=iteration,
            generation=iteration // 100,
            finished=iteration == 2000,
            scalars={"k": ScalarValue.of(np.float32(0.5)), "worst": ScalarValue.of(np.inf)},
            device="opencl:0",
            device_name="pocl",
        )
        arrays = {
            "u": np.repeat(np.linspace(-1, 1, 40, dtype="f4"), 100).reshape(40, 100),
            "lost": np.array([np.nan, 3.0, -np.inf]),
        }
        write_checkpoint(tmp_path / "heat.kkpt", Checkpoint(header, arrays))
    return tmp_path / "heat.kkpt"


def test_show_prints_every_fact(run_here: Command, path: Path) -> None:
    done = run_here("checkpoint", "show", path)
    assert (done.returncode, done.stderr) == (0, "")
    for words in ("heat [2D]", "2,000, finished", "whole           yes", "40 × 100", "k = 0.5 (<f4)", "worst = inf"):
        assert words in done.stdout
    assert "opencl:0 pocl" in done.stdout and "-inf" in done.stdout
    assert "heat.kkpt.1: iteration 1,000 of heat [2D] (generation 10), just now" in done.stdout
    assert not any(line != line.rstrip() for line in done.stdout.splitlines())


def test_names_from_the_file_cannot_reach_the_terminal(run_here: Command, tmp_path: Path) -> None:
    evil = "x\x1b[2J\nwhole           yes"
    header = CheckpointHeader(
        program=evil, program_digest=evil, layout_digest="", coupling=evil, items=1, iteration=1, generation=1,
        scalars={evil: ScalarValue.of(1)}, device=evil, device_name=evil, version=evil,
    )  # fmt: skip
    for _ in range(2):
        write_checkpoint(tmp_path / "x.kkpt", Checkpoint(header, {evil: np.zeros(3)}))
    done = run_here("checkpoint", "show", tmp_path / "x.kkpt")
    assert done.returncode == 0 and "\x1b" not in done.stdout and "x\\x1b[2J\\nwhole" in done.stdout
    assert sum(line.startswith("whole ") for line in done.stdout.splitlines()) == 1


def test_show_prints_json(run_here: Command, path: Path) -> None:
    done = run_here("checkpoint", "show", path, "--json", "--cache-dir", path.parent, "--device", "opencl")
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout, parse_constant=pytest.fail)
    assert said["whole"] is True and said["path"] == str(path) and said["nbytes"] == path.stat().st_size
    assert said["raw_bytes"] == 16_024 and said["ratio"] > 1
    assert said["header"]["iteration"] == 2000 and said["header"]["scalars"]["worst"]["value"] == "inf"
    assert said["arrays"][1] == {
        "name": "lost", "dtype": "<f8", "shape": [3], "nbytes": 24, "minimum": "-inf", "maximum": 3.0, "nans": 1
    }  # fmt: skip
    assert [(other["path"], other["header"]["iteration"]) for other in said["others"]] == [(f"{path}.1", 1000)]


def test_show_of_a_damaged_file_exits_1_and_names_the_part(run_here: Command, path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    done = run_here("checkpoint", "show", path)
    assert done.returncode == 1
    assert "heat.kkpt is damaged in the array" in one_sentence(done)
    assert "whole           no" in done.stdout and "heat.kkpt.1: iteration 1,000" in done.stdout
    done = run_here("checkpoint", "show", path, "--json")
    assert done.returncode == 1
    said = json.loads(done.stdout)
    assert said["whole"] is False and said["header"] is None and said["others"][0]["whole"] is True


def test_show_exits_1_for_a_missing_file_and_2_for_wrong_use(run_here: Command, tmp_path: Path) -> None:
    done = run_here("checkpoint", "show", tmp_path / "no.kkpt")
    assert done.returncode == 1 and "there is no checkpoint" in one_sentence(done)
    done = run_here("checkpoint", "show")
    assert done.returncode == 2 and "`kernelkeep checkpoint show --help`" in one_sentence(done)
    os.mkfifo(tmp_path / "pipe")
    done = run_here("checkpoint", "show", tmp_path / "pipe")
    assert done.returncode == 1 and "it is a named pipe, not a regular file" in one_sentence(done)
    done = run_here("checkpoint", "burn")
    assert done.returncode == 2 and "--help" in one_sentence(done)
    done = run_here("checkpoint")
    assert done.returncode == 2 and "show" in done.stdout
    done = run_here("checkpoint", "show", "--help")
    assert done.returncode == 0 and "--json  " in done.stdout and "<bool>" not in done.stdout
    done = run_here("checkpoint", "wave.kkpt")
    assert done.returncode == 2 and "`kernelkeep checkpoint show wave.kkpt` shows a file" in one_sentence(done)
