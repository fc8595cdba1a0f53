"""Ctrl-C, heeded between two turns: the state is committed then, and a checkpoint can be made of it."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

__all__ = ["Interruption"]


class Interruption:
    """For a `with` block, in which Ctrl-C is only noted. The second one raises `KeyboardInterrupt` as ever.

    Signals reach the main thread only: in any other this does nothing. Nor where Ctrl-C is ignored (`nohup`), or handled by
    something that is not Python.
    """

    def __init__(self) -> None:
        self.happened = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.happened:
            raise KeyboardInterrupt
        self.happened = True

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
