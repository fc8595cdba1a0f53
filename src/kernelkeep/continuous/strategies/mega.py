"""*mega*: many iterations inside one dispatch."""

from __future__ import annotations

import time

from ..run_options import RunOptions
from ..session import Session
from .base import Strategy

_GOAL_SECONDS = 0.02  # long enough to forget what a dispatch costs, short enough to be stopped


class Mega(Strategy):
    """N iterations a dispatch; N is what the caller says, or what takes about a fiftieth of a second."""

    name = "mega"

    def __init__(self, session: Session, options: RunOptions, form: str | None = None) -> None:
        super().__init__(session, options)
        self.form = form or session.launches.many
        session.launches.require(self.form)
        self._size = options.iterations_per_dispatch or 9

    def advance(self, limit: int, until: float) -> int:
        session = self.session
        size = session.budget(min(self._size, limit))
        start = time.perf_counter()
        if self.options.iterations_per_dispatch:
            self.stream(self._launch, size, limit, until, ahead=1)
            return size
        self.stream(self._launch, size, size, until, ahead=1)
        session.wait(session.mark())
        taken = time.perf_counter() - start
        if size == self._size:  # not cut short by the limit
            self._size = max(1, min(size * 4, int(size * _GOAL_SECONDS / max(taken, 1e-6)))) | 1
        return size

    def _launch(self, size: int) -> None:
        self.session.slice(self.form, size)
