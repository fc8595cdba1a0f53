"""The heartbeat of a supervised worker.

`beat` is called wherever work progresses, at every commit. In any other process it does nothing. In a worker it writes to
the supervisor, at most four times in a heartbeat interval or once a second, through a pipe that it never waits for. A worker
whose supervisor has died ends at once: its work would otherwise be done twice.
"""

from __future__ import annotations

import math
import os
import struct
import time
from typing import Any

from ..platforms import system
from ..processes import ORPHANED

RECORD = struct.Struct("<dq")  # the time, by a clock that all processes share, and the iteration or -1
_BEATS_PER_INTERVAL = 4
_LONGEST_PAUSE_SECONDS = 1.0


def pause_of(interval_seconds: float) -> float:
    """The shortest time between two beats that a worker sends; the supervisor may hear of a beat this much later."""
    return min(interval_seconds / _BEATS_PER_INTERVAL, _LONGEST_PAUSE_SECONDS)


class Pulse:
    """The writing end of the pipe to the supervisor."""

    def __init__(self, connection: Any, interval_seconds: float) -> None:
        self._write = system.pipe_writer(connection)
        self._pause = pause_of(interval_seconds)
        self._next = -math.inf
        self.iteration = -1

    def beat(self, iteration: int | None) -> None:
        if iteration is not None:
            self.iteration = iteration
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._pause
        try:
            self._write(RECORD.pack(now, self.iteration))
        except BlockingIOError:
            pass  # a supervisor that was stopped does not read, and needs no old beats
        except OSError:
            os._exit(ORPHANED)


_pulse: Pulse | None = None


def beat(iteration: int | None = None) -> None:
    """Report that the work progresses and, where it is known, which iteration is committed."""
    if _pulse is not None:
        _pulse.beat(iteration)


def is_supervised() -> bool:
    """Whether this process is a supervised worker."""
    return _pulse is not None


def last_iteration() -> int | None:
    """The iteration of the last beat in this worker, whether it was sent or not."""
    return None if _pulse is None or _pulse.iteration < 0 else _pulse.iteration


def start_beating(connection: Any, interval_seconds: float) -> None:
    """Make this process a supervised worker. It writes to a pipe of `multiprocessing`."""
    global _pulse
    _pulse = Pulse(connection, interval_seconds)


def stop_beating() -> None:
    """Make it an ordinary one again."""
    global _pulse
    _pulse = None


# A process forked by a worker must not report in its name.
system.on_fork(after_in_child=stop_beating)
