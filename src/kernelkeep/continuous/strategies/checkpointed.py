"""*checkpointed*: a slice ends before the deadline, and the next one goes on with nothing lost.

With a device clock the slice looks at it between iterations, and between the tasks of a queue. Without, its length is a number
of iterations made from measured times; for a queue it is a number of tasks where nothing in the run asks which round it is,
and a whole round where it does. The first slice is one iteration or one task, and later ones grow by what was measured
(`pace.py`). Work may grow while a slice runs, and then nothing can stop it any more without a device clock; so sizes aim at less
than a tenth of the deadline: a slice whose work grows tenfold half way still keeps it.

A slice that outlives the deadline nevertheless is reported while it runs, and is given up after `hang_seconds` more.
"""

from __future__ import annotations

import time
import warnings

from ...errors import DeviceError
from ..control import Stopped
from ..report import DeadlineWarning
from ..session import Session
from .base import Options, Strategy
from .pace import AIM, MOST, Pace

__all__ = ["Checkpointed"]

_DEFAULT_DEADLINE_SECONDS = 1.5  # below the two seconds after which desktop drivers reset the device
_CLOCK_AIM = 0.8
_LOOK = 0.01  # of the deadline passes between two looks at the clock
_WARN_STACK = 7  # from here to the caller of `run` or `resume`


class Checkpointed(Strategy):
    """Slices that keep a deadline."""

    name = "checkpointed"

    def __init__(self, session: Session, options: Options) -> None:
        super().__init__(session, options)
        self.deadline = options.deadline_seconds or _DEFAULT_DEADLINE_SECONDS
        # A round that may be divided is divided by tasks: a whole one may be longer than the deadline.
        self.in_tasks = bool(session.program.tasks) and options.splits_rounds
        clock = session.device.capabilities.device_clock
        self.by_clock = clock and session.can("grid") and not self.in_tasks
        self.form = "grid" if self.by_clock else "span" if session.can("span") else "step"
        self.pace = Pace(self.deadline, aim=_CLOCK_AIM if self.by_clock else AIM, side_by_side=self.in_tasks)
        self._last = (session.iteration, 0.0)
        self._reported = 0.0  # the longest slice that was reported
        self._told_of_tasks = False
        session.warm_up(self.form)

    def _advance(self, limit: int, until: float) -> int:
        session = self.session
        done = size = 0
        self._learn()
        while done < limit:
            size = 1 if self.form == "step" else session.budget(min(self.pace.size, limit - done))
            before = session.taken
            taken = self._run_slice(size)
            done += size
            if self.in_tasks:
                session.synchronize()  # only the device knows how many tasks there were
                self.pace.note(session.taken - before, taken)
                self._tell_of_long_tasks(session.taken - before, taken)
                if session.stopped is not Stopped.NO:
                    break
            elif self.form != "step":
                self.pace.note(size, taken)
            if self.by_clock or taken > self.pace.aim_seconds * 2 or time.perf_counter() > until:
                break  # by the clock only the device knows how far it came
        return size

    def _run_slice(self, size: int) -> float:
        """Dispatch one slice and wait for it; the seconds it took."""
        session = self.session
        start = time.perf_counter()
        session.slice(
            self.form,
            size,
            deadline_seconds=self._clock_seconds(),
            tasks=self.pace.size if self.in_tasks else None,
        )
        mark = session.mark()
        reported = False
        if not session.wait_at_most(mark, start + self.deadline - time.perf_counter()):
            reported = self._report(size, time.perf_counter() - start, over=False)
            if not session.wait_at_most(mark, self.options.hang_seconds):
                session.give_up(mark)
                raise DeviceError(
                    f"{self._describe(size)} was given up after {time.perf_counter() - start:.1f} s (deadline_seconds "
                    f"{self.deadline:g} and hang_seconds {self.options.hang_seconds:g}); the last checkpoint file is good. "
                    f"{self._advice(size)}, or raise hang_seconds if it needs that long"
                )
        taken = time.perf_counter() - start
        if taken > self.deadline:
            session.measured.late_slices += 1
            if not reported:
                self._report(size, taken, over=True)
        session.measured.note_slice(taken)
        self._last = (session.iteration, taken)
        return taken

    def _clock_seconds(self) -> float:
        """When the device is to end a slice by its own clock."""
        if self.by_clock:
            return self.deadline * _CLOCK_AIM
        # A task that has begun is finished, so the last one must begin early enough.
        return max(self.deadline * (1 - MOST), self.deadline * _CLOCK_AIM - 1.5 * self.pace.least_seconds)

    def _learn(self) -> None:
        """By the clock, how far the last slice came is known only now."""
        before, taken = self._last
        came = self.session.iteration - before
        if self.by_clock and came > 0:
            self.session.look_every(self.deadline * _LOOK, taken / came)

    # --- what is said about slices that are too long

    def _report(self, size: int, seconds: float, *, over: bool) -> bool:
        """Warn about a slice that outlives the deadline: the first one, and then those twice as long as any before."""
        if seconds < 2 * self._reported:
            return True
        self._reported = seconds
        took = f"took {seconds:.3g} s" if over else f"still runs after {seconds:.3g} s"
        given_up = "" if over else f" It is given up after {self.options.hang_seconds:g} s more (hang_seconds)."
        warnings.warn(
            f"{self._describe(size)} {took}, and deadline_seconds is {self.deadline:g}.{given_up} {self._advice(size)}",
            DeadlineWarning,
            stacklevel=_WARN_STACK,
        )
        return True

    def _describe(self, size: int) -> str:
        program, device = self.session.program, self.session.device
        amount = self.pace.size if self.in_tasks else size
        what = "task" if self.in_tasks else "round" if program.tasks else "iteration"
        what += "s" if amount > 1 else ""
        expected = self.pace.expected_seconds(amount)
        told = "nothing was measured before" if expected is None else f"expected {expected:.3g} s"
        return f"a dispatch of {program.name} on {device.spec} with at most {amount:,} {what} ({told})"

    def _advice(self, size: int) -> str:
        if self.in_tasks:
            return "Divide the tasks into shorter ones, or raise deadline_seconds" + (
                "" if self.pace.size > 1 else ": one task is the least that a dispatch can have"
            )
        least = "a round of this queue" if self.session.program.tasks else "an iteration"
        if size == 1:
            return f"Let {least} do less, or raise deadline_seconds: it is the least that a dispatch can have here"
        return "Raise deadline_seconds, or let iterations do more equal amounts of work"

    def _tell_of_long_tasks(self, tasks: int, taken: float) -> None:
        """A single task that leaves no room for a second one beside it makes a wide device as slow as a narrow one."""
        if tasks != 1 or self._told_of_tasks or not self.deadline * MOST / 2 < taken <= self.deadline:
            return
        if not self.session.pending_tasks:
            return
        self._told_of_tasks = True
        warnings.warn(
            f"one task of {self.session.program.name} takes {taken:.3g} s on {self.session.device.spec}, and "
            f"deadline_seconds is {self.deadline:g}: tasks are dispatched one at a time. Raise deadline_seconds to "
            f"{3 * taken:.2g}, or divide the tasks",
            DeadlineWarning,
            stacklevel=_WARN_STACK - 1,
        )
