"""What a child process owes its parent: to end with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

__all__ = ["ORPHANED", "end_with"]

ORPHANED = 74  # the exit code of a child without a parent
_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Be killed when the parent dies, however it dies; on Linux the kernel sees to that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before that was arranged
        os._exit(ORPHANED)
