"""Every example runs and ends well, on every device found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernelkeep as kk

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, opencl_device: str, tmp_path: Path) -> None:
    specs = {info.spec for info in kk.list_devices() if not info.is_interpreter}
    assert opencl_device in specs
    for spec in sorted(specs):
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
