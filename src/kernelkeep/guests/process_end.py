"""What is to be done when a process ends, forked processes included."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any


def at_process_end(call: Callable[..., object], *arguments: Any) -> None:
    """Call it when this process ends in an orderly way, and not in those that are forked from it. It may be called twice.

    `multiprocessing` ends the processes that it forked with `os._exit`, which calls nothing that `atexit` has.
    """
    process = os.getpid()

    def at_end() -> None:
        if os.getpid() == process:
            call(*arguments)

    atexit.register(at_end)
    util: Any = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, at_end, exitpriority=0)
