"""Every example runs and ends well, on several devices."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kernelkeep as kk

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, devices_for: Callable[[int], list[str]], tmp_path: Path) -> None:
    for spec in devices_for(EXAMPLES.index(example)):
        environment = {
            **os.environ,
            "KERNELKEEP_DEVICE": spec,
            "KERNELKEEP_CACHE_DIR": str(tmp_path / "cache"),
            "PYTHONPATH": str(Path(kk.__file__).parents[1]),
        }
        done = subprocess.run(
            [sys.executable, str(example)], capture_output=True, text=True, timeout=300, env=environment, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert spec in done.stdout
