"""*checkpointed*: a slice stops itself before the deadline, and the next one goes on with nothing lost.

With a device clock the slice looks at it between iterations. Without, its length is an iteration budget made from measured
times; for a queue it is a number of tasks where nothing in the run asks which round it is, and a whole round where it does.
Work may grow while a slice runs, and then nothing can stop it any more; so budgets aim at less than a tenth of the deadline: a
slice whose work grows tenfold half way still keeps it, and the next budget is made from what was seen.
"""

from __future__ import annotations

import time

from ..session import Session
from .base import Options, Strategy

__all__ = ["Checkpointed"]

_DEFAULT_DEADLINE_SECONDS = 1.5  # below the two seconds after which desktop drivers reset the device
_AIM = 0.08  # not 0.1: what a slice takes varies by a quarter, and ten times that must still fit
_CLOCK_AIM = 0.8
_CALIBRATION = 2  # slices, the first of which may compile
_LOOK = 0.01  # of the deadline passes between two looks at the clock


class Checkpointed(Strategy):
    """Slices that keep a deadline."""

    name = "checkpointed"

    def __init__(self, session: Session, options: Options) -> None:
        super().__init__(session, options)
        self.deadline = options.deadline_seconds or _DEFAULT_DEADLINE_SECONDS
        # The clock is looked at between rounds of a queue, so a round that may be divided is divided by tasks instead.
        divided = bool(session.program.tasks) and options.splits_rounds
        self.by_clock = session.device.capabilities.device_clock and session.can("grid") and not divided
        self.form = "grid" if self.by_clock else "span" if session.can("span") else "step"
        self._last = (session.iteration, 0.0)
        self._calibrated = 0
        self._budget = 1  # iterations, or tasks where a slice is one round of the queue

    def _advance(self, limit: int, until: float) -> int:
        session = self.session
        in_tasks = self.form == "step" and bool(session.program.tasks) and self.options.splits_rounds
        done = size = 0
        self._learn()
        while done < limit:
            size = 1 if self.form == "step" else session.budget(min(self._budget, limit - done))
            start = time.perf_counter()
            session.slice(
                self.form,
                size,
                deadline_seconds=self.deadline * _CLOCK_AIM if self.by_clock else 0.0,
                tasks=self._budget if in_tasks else None,
            )
            session.wait(session.mark())
            taken = time.perf_counter() - start
            self._calibrated += 1
            if self._calibrated > _CALIBRATION:
                session.measured.note_slice(taken)
            self._last = (session.iteration, taken)
            done += size
            if in_tasks or self.form != "step":
                self._adapt(self._budget if in_tasks else size, taken)
            if self.by_clock or taken > self.deadline * _AIM * 2 or time.perf_counter() > until:
                break  # by the clock only the device knows how far it came
        return size

    def _learn(self) -> None:
        """By the clock, how far the last slice came is known only now."""
        before, taken = self._last
        came = self.session.iteration - before
        if self.by_clock and came > 0:
            self.session.look_every(self.deadline * _LOOK, taken / came)

    def _adapt(self, size: int, taken: float) -> None:
        aim = self.deadline * (_CLOCK_AIM if self.by_clock else _AIM)
        fitting = max(1, min(int(size * aim / max(taken, 1e-6)), 2**30))
        # Slowly up, and only after a slice of full length; at once down.
        if fitting < self._budget or size == self._budget:
            self._budget = min(fitting, self._budget * 2)
