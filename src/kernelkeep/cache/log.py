"""Log lines of the cache: logger `kernelkeep`, level INFO, each naming the thread and the program."""

from __future__ import annotations

import logging
import threading
from typing import Any

__all__ = ["say"]

_log = logging.getLogger("kernelkeep")


def say(program: str, text: str, *values: Any) -> None:
    """Log what happened to a program, in the thread it happened in."""
    if _log.isEnabledFor(logging.INFO):
        _log.info("%s: %s: " + text, threading.current_thread().name, program, *values)
