"""The suites' runner: a test that hangs is shown, fails, and costs its time limit only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HANGING = """
import ctypes

def test_before():
    pass

def test_that_loops_in_python():
    while True:
        pass

def test_that_waits_in_c():
    library = ctypes.PyDLL(None)  # keeps the interpreter's lock, as a badly bound driver would
    mutex = ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)

def test_that_dies():
    ctypes.string_at(0)

def test_after():
    pass
"""


def test_a_test_that_hangs_or_dies_does_not_end_the_run(tmp_path: Path) -> None:
    suite, logs = tmp_path / "test_hanging.py", tmp_path / "logs"
    suite.write_text(HANGING)
    command: list[str | Path] = [
        sys.executable,
        ROOT / "scripts/gpu-test",
        "--limit=0.5",
        "--jobs=1",
        "--logs",
        logs,
        suite,
    ]
    environment = {**os.environ, "KERNELKEEP_REQUIRE": "opencl"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^all +2 +3 +0 ", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^FAILED .*test_that_loops_in_python: .*longer than 0.5 s", done.stdout, re.MULTILINE)
    assert re.search(r"^FAILED .*test_that_waits_in_c: it hung for more than 0.5 s", done.stdout, re.MULTILINE)
    assert re.search(r"^FAILED .*test_that_dies: the process died with SIGSEGV", done.stdout, re.MULTILINE)
    stacks = (logs / "failures.log").read_text()
    assert "in test_that_loops_in_python" in stacks and "in test_that_waits_in_c" in stacks

    suite.write_text("def test_that_passes():\n    pass\n")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert done.returncode == 0 and "nothing failed" in done.stdout, done.stdout + done.stderr
