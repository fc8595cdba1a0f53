"""Failures that a test orders: which call, which time, and what it does."""

from __future__ import annotations

import copy
import threading
import time
from collections import Counter

from ...errors import ArgumentError, BinaryRejected, CompileError, DeviceError, OutOfMemory

__all__ = ["CALLS", "Faults", "Hang"]

# What each call raises when it is told to fail.
CALLS: dict[str, Exception] = {
    "compile": CompileError("the fake compiler refuses this source", log="refused"),
    "load": BinaryRejected("the fake driver refuses this binary"),
    "allocate": OutOfMemory("the fake device has no memory left"),
    "launch": DeviceError("the fake driver refuses this launch"),
    "run": DeviceError("a kernel failed on the fake device"),
    "upload": DeviceError("the fake driver refuses this upload"),
    "download": DeviceError("the fake driver refuses this download"),
}


class Hang:
    """A call that does not return until the test releases it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def wait_until_reached(self, timeout_seconds: float = 30.0) -> None:
        """Wait until some thread hangs in the call."""
        assert self._reached.wait(timeout_seconds), "nobody came to the call that was to hang"

    def release(self) -> None:
        """Let the call go on, and all that come after it."""
        self._released.set()

    def hold(self) -> None:
        """Called by the device."""
        self._reached.set()
        self._released.wait()


class Faults:
    """What goes wrong on a fake device, in the order in which it was told.

    Calls are "compile", "load", "allocate" and "launch" in the caller's thread; "run" (a kernel), "upload" and "download" in
    the device's. `counts` says how often each was made.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._orders: list[tuple[str, int, int, Exception | Hang | float]] = []

    def fail(self, call: str, error: Exception | None = None, *, after: int = 0, times: int = 1) -> None:
        """Have a call raise, `times` times, once `after` more of them have succeeded."""
        self._order(call, CALLS.get(call) if error is None else error, after, times)

    def delay(self, call: str, seconds: float, *, after: int = 0, times: int = 1) -> None:
        """Have a call take so long."""
        self._order(call, seconds, after, times)

    def hang(self, call: str, *, after: int = 0) -> Hang:
        """Have a call hang until it is released."""
        made = Hang()
        self._order(call, made, after, 1)
        return made

    def _order(self, call: str, what: Exception | Hang | float | None, after: int, times: int) -> None:
        if call not in CALLS or what is None:
            raise ArgumentError(f"call must be one of {', '.join(CALLS)}, got {call!r}")
        with self._lock:
            first = self.counts[call] + after
            self._orders.append((call, first, first + times, what))

    def meet(self, call: str) -> None:
        """Called by the device at the beginning of each call."""
        with self._lock:
            number = self.counts[call]
            self.counts[call] += 1
            met = [what for name, first, end, what in self._orders if name == call and first <= number < end]
        for what in met:
            if isinstance(what, Exception):
                raise copy.copy(what)  # one that was raised before holds that traceback
            if isinstance(what, Hang):
                what.hold()
            else:
                time.sleep(what)
