"""docs/benchmarks.md is written from rows that were measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_page_is_what_the_rows_say() -> None:
    script = ROOT / "scripts" / "benchmarks_page.py"
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
