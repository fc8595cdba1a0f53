"""`scripts/test`: a crash ends one part of the tests, and only one that comes back fails the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "test"
CRASHES = """
import os, signal
from pathlib import Path

def test_crashes():
    mark = Path(__file__).with_suffix(".mark")
    if {always} or not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_a_part_that_crashes_runs_once_more(tmp_path: Path) -> None:
    once, always = tmp_path / "test_once.py", tmp_path / "test_always.py"
    once.write_text(CRASHES.format(always=False))
    always.write_text(CRASHES.format(always=True))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--parts", str(once), str(always)], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 1, done.stdout
    first, second, total = done.stdout.splitlines()[-3:]
    assert first.startswith("ok") and first.endswith("1 passed; the first time it ended with SIGSEGV")
    assert second.startswith("FAILED") and second.endswith("the first time it ended with SIGSEGV")
    assert total.startswith("1 passed in ")
