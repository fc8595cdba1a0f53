"""Residents that nobody has closed. When the interpreter ends their grids do, and a `ResourceWarning` names each.

A kernel that never exits, or a thread in a driver, must be gone before the driver's own exit handlers run.
"""

from __future__ import annotations

import atexit
import warnings
from typing import Protocol

from ..platforms import system
from ..weak_set import WeakSet


class _Resident(Protocol):
    def end_at_exit(self) -> bool: ...


_open: WeakSet[_Resident] = WeakSet()  # a grid that runs holds its resident


def add_open_resident(resident: _Resident) -> None:
    """Its grid is about to start."""
    _open.add(resident)


def discard_open_resident(resident: _Resident) -> None:
    """It has ended."""
    _open.discard(resident)


def warn_unclosed(resident: str) -> None:
    """Say that nobody closed it. It is told by its text: a warning that holds it would keep it alive."""
    warnings.warn(f"{resident} was never closed: use `with`, or call close()", ResourceWarning, stacklevel=3)


@atexit.register
def _end_all() -> None:
    texts = [(repr(one), one.end_at_exit()) for one in _open]
    for text, was_open in texts:
        if was_open:
            warn_unclosed(text)


system.on_fork(after_in_child=_open.clear)  # the grids are the parent's
