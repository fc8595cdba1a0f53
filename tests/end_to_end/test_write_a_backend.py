"""The backend in docs/write-a-backend.md is under 100 lines, runs as printed and passes the parts of DeviceTests it names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernelkeep as kk

PAGE = Path(__file__).parents[2] / "docs" / "write-a-backend.md"
BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the page's backend needs a C compiler")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "KERNELKEEP_REQUIRE": "host",
        "KERNELKEEP_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join((str(folder), str(Path(kk.__file__).parents[1]))),
    }
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_backend_is_short(folder: Path) -> None:
    lines = (folder / "my_backend.py").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line.strip()]) < 100


def test_the_backend_runs_and_its_programs_are_kept(folder: Path) -> None:
    for origin in ("compiled", "disk"):
        done = run(folder, "use.py")
        assert done.stdout.strip() == f"[5. 5. 5.] {origin}", done.stderr


def test_the_backend_passes_its_part_of_the_conformance_suite(folder: Path) -> None:
    tests = ("test_my_backend.py", "test_meaning.py", "test_failures.py")
    done = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout and "failed" not in done.stdout
