"""Ctrl-C, SIGTERM and SIGHUP are obeyed between two turns: the state is committed then, and goes to a checkpoint."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Self

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interruption:
    """For a `with` block, in which a signal is only noted. A second one takes effect at once.

    Signals reach the main thread only: in any other this does nothing. Ctrl-C stays ignored where it is (`nohup`), and where
    something other than Python handles it. SIGTERM and SIGHUP are noted where there is something to save, and only where
    they have their default effect: a handler of the caller's own stays, and so does ignoring them.
    """

    def __init__(self, *, saves: bool) -> None:
        self.signal: int | None = None  # the first that came
        self.hurried = False  # a second one came
        self._saves = saves
        self._before: dict[int, Any] = {}

    @property
    def happened(self) -> bool:
        """Whether the run is to end."""
        return self.signal is not None

    @property
    def ends_process(self) -> bool:
        """Whether the signal ends the process, and raises nothing."""
        return self.signal in _ENDING

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        if callable(signal.getsignal(signal.SIGINT)):
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._note)
        for number in _ENDING if self._saves else ():
            if signal.getsignal(number) is signal.SIG_DFL:
                self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is None:
            self.signal = number
            return
        self.hurried = True
        _end_by(number)

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def pass_on(self) -> None:
        """After the block: let the signal take effect, as `KeyboardInterrupt` or as the end of the process."""
        if self.signal is not None:
            _end_by(self.signal)


class EndingSignal(BaseException):
    """SIGTERM or SIGHUP came, which would have ended the process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def raise_ending_signals() -> Iterator[None]:
    """For a `with` block in the main thread SIGTERM and SIGHUP raise `EndingSignal`; after it they end the process.

    As in `Interruption`, only where they have their default effect.
    """

    def arrived(number: int, frame: FrameType | None) -> None:
        raise EndingSignal(number)

    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, arrived)
    try:
        yield
    except EndingSignal as ending:
        _end_by(ending.number)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_by(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
