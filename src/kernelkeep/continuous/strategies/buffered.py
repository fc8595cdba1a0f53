"""*buffered*: slices are prepared and enqueued ahead, so that the device never waits for the host."""

from __future__ import annotations

import time

from ..run_options import RunOptions
from ..session import Session
from .base import Strategy

_AHEAD_SECONDS = 0.02  # of work enqueued; more only makes the run slow to react
_FEWEST_AS_ONE = 8


class Buffered(Strategy):
    """At most `ahead` slices wait behind the one that runs. A driver that takes many launches as one gets half of them
    at a time; a chain counts as one slice, and is up to twice as long as `ahead`."""

    name = "buffered"

    def __init__(self, session: Session, options: RunOptions) -> None:
        super().__init__(session, options)
        self._ahead = 2
        self._fitting = 2  # iterations in the time that may be enqueued, as far as it was measured
        self._paced = False
        self._size = options.iterations_per_dispatch or 1
        if self._size > 1:
            session.launches.require(session.launches.many)

    def expect(self, seconds: float) -> None:
        """An iteration was measured already: nothing is to be found out any more."""
        self._fitting = int(_AHEAD_SECONDS / max(seconds, 1e-7))
        self._ahead = max(1, min(self.options.ahead, self._fitting))
        self._paced = True

    def advance(self, limit: int, until: float) -> int:
        session = self.session
        size = session.budget(self._size) if self._size > 1 else 1
        ahead = min(self.options.ahead, self._ahead)
        if not self._paced:
            limit = min(limit, 8 * ahead * size)  # a short turn, to measure how much to enqueue
        start, done = time.perf_counter(), 0
        if size == 1 and session.device.replays_whole:
            chains = session.launches.can("chain")
            most = min(2 * ahead, self._fitting // 2) if chains else ahead // 2
            as_one = 1 << max(0, most.bit_length() - 1)  # a power of two, so that few sizes are recorded and kept
            if as_one >= _FEWEST_AS_ONE:
                many = session.chain if chains else session.steps
                done = self.stream(many, as_one, limit, until, ahead=1, whole=True)
        if time.perf_counter() < until:
            kind = "step" if size == 1 else session.launches.many
            done += self.stream(lambda count: session.slice(kind, count), size, limit - done, until, max(1, ahead))
        session.wait(session.mark())
        each = (time.perf_counter() - start) / max(1, done // size)
        self._fitting = int(_AHEAD_SECONDS / max(each, 1e-7))
        fitting = max(1, min(self.options.ahead, self._fitting))
        self._paced = fitting <= self._ahead * 4
        self._ahead = min(fitting, self._ahead * 4)
        return size
