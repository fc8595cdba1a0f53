"""Log lines of the cache: logger `kernelkeep`, level INFO, each naming the thread and the program."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

from ..escaping import escaped

if TYPE_CHECKING:
    import logging

_INFO = 20  # logging.INFO
_logger: logging.Logger | None = None


def log(program: str, text: str, *values: Any) -> None:
    """Log what happened to a program, with the name of this thread. Names and texts are escaped."""
    global _logger
    if _logger is None:
        if "logging" not in sys.modules:  # nobody has set a level, and importing it takes longer than a hit
            return
        import logging

        _logger = logging.getLogger("kernelkeep")
    if _logger.isEnabledFor(_INFO):
        safe = (value if isinstance(value, int | float) else escaped(value) for value in values)
        _logger.info("%s: %s: " + text, threading.current_thread().name, escaped(program), *safe)
