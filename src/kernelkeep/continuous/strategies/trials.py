"""What an iteration takes in several ways to run it, measured with real work: the state advances by it.

Other processes, and a device that is still waking up, make a try longer, never shorter, and for a while. So the best try of each
way counts, and the ways take turns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from ..mailbox import Stopped
from ..session import Session

_SECONDS = 0.01  # after which tries do not become longer
_TURNS = 3  # more tries of each way, once they are long enough


class Trial:
    """One way: `launch` enqueues `budget` iterations. What is tried again does not go beyond iteration `end`."""

    def __init__(self, session: Session, launch: Callable[[], None], budget: int, end: int) -> None:
        self.seconds = math.inf  # of an iteration, the best try so far
        self._session = session
        self._launch = launch
        self._budget = budget
        self._end = end
        self._count = 1  # launches of a try

    def grow(self, enough: int) -> Trial:
        """Ever longer tries, up to `enough` iterations. The first one loads the code and does not count."""
        self._try()
        if self._session.stopped is Stopped.NO:
            self.seconds = math.inf
            spent = self._try()
            while self._count * self._budget < enough and spent < _SECONDS and self._session.stopped is Stopped.NO:
                self._count *= 2
                spent += self._try()
        return self

    def again(self) -> None:
        """One more try, as long as the longest."""
        session = self._session
        if session.stopped is Stopped.NO and session.iteration + self._count * self._budget <= self._end:
            self._try()

    def _try(self) -> float:
        session = self._session
        while True:
            before = session.iteration
            start = time.perf_counter()
            for _ in range(self._count):
                self._launch()
            session.synchronize()
            passed = time.perf_counter() - start
            if session.stopped not in (Stopped.OVERRUN, Stopped.OVERFLOW):
                break
            session.mend(self._budget)
        self.seconds = min(self.seconds, passed / max(1, session.iteration - before))
        return passed


def take_turns(trials: Iterable[Trial]) -> None:
    """A few more tries of each: what disturbs for a while disturbs all alike."""
    trials = list(trials)
    for _ in range(_TURNS):
        for trial in trials:
            trial.again()
