"""Running a piece of Python in a process of its own: nothing of this one's state can help it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

from ..processes import python_environment

__all__ = ["run_python"]


def run_python(
    script: str,
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = 120,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run `script` with this interpreter and this kernelkeep; `environment` is added to this process's own.

    With `check`, a script that fails is an AssertionError that shows what it wrote to stderr.
    """
    variables = python_environment({**os.environ, **(environment or {})})
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout_seconds, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"the child process ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done
