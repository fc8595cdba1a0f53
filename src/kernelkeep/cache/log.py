"""Log lines of the cache: logger `kernelkeep`, level INFO, each naming the thread and the program."""

from __future__ import annotations

import logging
import threading
from typing import Any

from ..escaping import escaped

_logger = logging.getLogger("kernelkeep")


def log(program: str, text: str, *values: Any) -> None:
    """Log what happened to a program, with the name of this thread. Names and texts are escaped."""
    if _logger.isEnabledFor(logging.INFO):
        safe = (value if isinstance(value, int | float) else escaped(value) for value in values)
        _logger.info("%s: %s: " + text, threading.current_thread().name, escaped(program), *safe)
