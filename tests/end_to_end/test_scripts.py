"""`scripts/test`: a crash fails one part of the tests, and the others run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "test"


def test_a_crash_fails_one_part(tmp_path: Path) -> None:
    crashes, passes = tmp_path / "test_crashes.py", tmp_path / "test_passes.py"
    crashes.write_text("import os, signal\ndef test_crashes(): os.kill(os.getpid(), signal.SIGSEGV)\n")
    passes.write_text("def test_passes(): pass\n")
    command = [sys.executable, str(SCRIPT), "--parts", str(crashes), str(passes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stdout
    first, second, total = done.stdout.splitlines()[-3:]
    assert first.startswith("FAILED") and first.endswith("SIGSEGV")
    assert second.startswith("ok") and second.endswith("1 passed")
    assert total.startswith("1 passed in ")
