"""Child processes: they find this package, and end with their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Mapping
from pathlib import Path

ORPHANED = 74  # the exit code of a child without a parent
_PR_SET_PDEATHSIG = 1
_PACKAGE_PARENT = Path(__file__).resolve().parents[1]


def python_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables for a Python process, with a PYTHONPATH on which it finds this very package."""
    paths = (str(_PACKAGE_PARENT), variables.get("PYTHONPATH", ""))
    return {**variables, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def end_with(parent: int) -> None:
    """Be killed when the parent dies, however it dies; on Linux the kernel sees to that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before that was arranged
        os._exit(ORPHANED)
