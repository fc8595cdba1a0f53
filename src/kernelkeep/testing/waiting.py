"""Waiting in tests for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(look: Callable[[], T]) -> T:
    """What `look` returns once it is true. The time limit of the test ends it otherwise."""
    while not (found := look()):
        time.sleep(0.05)
    return found
