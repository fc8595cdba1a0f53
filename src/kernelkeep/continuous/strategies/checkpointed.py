"""*checkpointed*: a slice ends before the deadline, and the next one continues with nothing lost.

The first dispatch is one item, or one task of a queue, and later ones grow by what was measured (`pace.py`). Iterations that fit
go into slices of many; one that does not is dispatched in parts, of which the last one commits it. With a device clock a slice
reads it between iterations, and between the tasks of a queue. Without one, its length is a number of iterations, items or
tasks. Work may grow while a slice runs, and without a device clock nothing can stop it then; so sizes aim at less than a tenth
of the deadline: a slice whose work grows tenfold half way still keeps it.

A round of a queue is divided by tasks only where nothing in the run depends on which round it is. A slice that outlives the
deadline is reported while it runs, and is given up after `hang_seconds` more.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

from ...errors import DeviceError
from ..mailbox import Stopped
from ..report import DeadlineWarning
from ..run_options import RunOptions
from ..session import Session
from .base import Strategy
from .pace import AIM, MOST, Pace

_DEFAULT_DEADLINE_SECONDS = 1.5  # below the two seconds after which desktop drivers reset the device
_CLOCK_AIM = 0.8
_CLOCK_PERIOD = 0.01  # of the deadline passes between two reads of the clock
_WARN_STACK = 9  # from here to the caller of `run` or `resume`


class Checkpointed(Strategy):
    """Slices that keep a deadline."""

    name = "checkpointed"

    def __init__(self, session: Session, options: RunOptions) -> None:
        super().__init__(session, options)
        self.deadline = options.deadline_seconds or _DEFAULT_DEADLINE_SECONDS
        self.in_tasks = bool(session.program.tasks) and options.splits_rounds(session.program)
        clock = session.device.capabilities.device_clock
        # A round that may be divided is divided by tasks: a whole one may be longer than the deadline.
        self.by_clock = clock and session.launches.can("grid") and not self.in_tasks
        self.form = "grid" if self.by_clock else "span" if session.launches.can("span") else "step"
        self.in_parts = not session.program.tasks  # until it is known that an iteration fits
        self.pace = Pace(self.deadline, aim=_CLOCK_AIM if self.by_clock else AIM)  # of iterations
        self.parts = Pace(self.deadline, side_by_side=True)  # of items, or of tasks
        self._next_item = 0
        self._iteration_seconds = 0.0  # of the parts of this iteration so far
        self._last: tuple[int, float] | None = None  # where the last slice of many iterations began, and what it took
        self._reported = 0.0  # the longest slice that was reported
        self._warned_of_long_units = False
        self._warm: set[str] = set()

    def advance(self, limit: int, until: float) -> int:
        session = self.session
        done = size = 0
        self._learn()
        while done < limit:
            if self.in_tasks:
                size, taken = 1, self._run_tasks()
                done += 1
            elif self.in_parts:
                size, taken = 1, self._run_part()
                done += self._next_item == 0
            else:
                size = 1 if self.form == "step" else session.budget(min(self.pace.size, limit - done))
                taken = self._run_iterations(size)
                done += size
            if session.stopped is not Stopped.NO or taken > self.deadline * AIM * 2 or time.perf_counter() > until:
                break
            if self.by_clock and not self.in_parts:
                break  # only the device knows how far it came
        return size

    def _run_iterations(self, size: int) -> float:
        session = self.session
        seconds = self.deadline * _CLOCK_AIM if self.by_clock else 0.0
        taken = self._run_slice(
            self.form, lambda: session.slice(self.form, size, deadline_seconds=seconds), size, self.pace
        )
        self._last = (session.iteration, taken)
        self.pace.note(size, taken)
        if size == 1 and taken > self.deadline * AIM * 2 and not session.program.tasks:
            self.in_parts = True
        return taken

    def _run_part(self) -> float:
        """Run some items of an iteration."""
        session, first = self.session, self._next_item
        count = min(self.parts.size, session.program.items - first)
        taken = self._run_slice("step", lambda: session.part(first, count), count, self.parts)
        self.parts.note(count, taken)
        self._warn_of_long_units(count, taken)
        self._iteration_seconds += taken
        self._next_item = first + count
        if self._next_item >= session.program.items:
            self.in_parts = self.form == "step" or self._iteration_seconds > self.deadline * AIM
            self._next_item, self._iteration_seconds = 0, 0.0
        return taken

    def _run_tasks(self) -> float:
        """Run some tasks of a round."""
        session, before = self.session, self.session.taken
        # A task that has begun runs to its end, so the last one must begin early enough.
        seconds = max(self.deadline * (1 - MOST), self.deadline * _CLOCK_AIM - 1.5 * self.parts.least_seconds)
        count = self.parts.size
        taken = self._run_slice(
            "step", lambda: session.slice("step", deadline_seconds=seconds, tasks=count), count, self.parts
        )
        session.synchronize()  # only the device knows how many tasks there were
        self.parts.note(session.taken - before, taken)
        if session.pending_tasks:
            self._warn_of_long_units(session.taken - before, taken)
        return taken

    def _run_slice(self, form: str, launch: Callable[[], None], size: int, pace: Pace) -> float:
        """Dispatch one slice and wait for it; returns the seconds it took."""
        session = self.session
        if form not in self._warm:
            session.warm_up(form)
            self._warm.add(form)
        start = time.perf_counter()
        launch()
        mark = session.mark()
        reported = False
        if not session.wait_at_most(mark, start + self.deadline - time.perf_counter()):
            self._report(size, pace, time.perf_counter() - start, over=False)
            reported = True
            if not session.wait_at_most(mark, self.options.hang_seconds):
                session.give_up(mark)
                raise DeviceError(
                    f"{self._describe(size, pace)} was given up after {time.perf_counter() - start:.1f} s (deadline_seconds "
                    f"{self.deadline:g} and hang_seconds {self.options.hang_seconds:g}); the last checkpoint file is good. "
                    f"{self._advice(size)}, or raise hang_seconds if it needs that long"
                )
        taken = time.perf_counter() - start
        if taken > self.deadline:
            session.measured.late_slices += 1
            if not reported:
                self._report(size, pace, taken, over=True)
        session.measured.note_slice(taken)
        return taken

    def _learn(self) -> None:
        """Where the clock ends slices, how far the last one came is known only now."""
        if self.by_clock and self._last is not None:
            before, taken = self._last
            if (came := self.session.iteration - before) > 0:
                self.session.read_clock_every(self.deadline * _CLOCK_PERIOD, taken / came)
        self._last = None

    # --- warnings about slices that are too long

    def _report(self, size: int, pace: Pace, seconds: float, *, over: bool) -> None:
        """Warn about a slice that outlives the deadline: the first one, and then those twice as long as any before."""
        if seconds < 2 * self._reported:
            return
        self._reported = seconds
        took = f"took {seconds:.3g} s" if over else f"still runs after {seconds:.3g} s"
        given_up = "" if over else f" It is given up after {self.options.hang_seconds:g} s more (hang_seconds)."
        warnings.warn(
            f"{self._describe(size, pace)} {took}, and deadline_seconds is {self.deadline:g}.{given_up} {self._advice(size)}",
            DeadlineWarning,
            stacklevel=_WARN_STACK,
        )

    @property
    def _unit(self) -> str:
        if self.in_tasks:
            return "task"
        return "item" if self.in_parts else "round" if self.session.program.tasks else "iteration"

    def _describe(self, size: int, pace: Pace) -> str:
        expected = pace.expected_seconds(size)
        estimate = "nothing was measured before" if expected is None else f"expected {expected:.3g} s"
        session, units = self.session, self._unit + ("s" if size > 1 else "")
        return (
            f"a dispatch of {session.program.name} on {session.device.spec} with at most {size:,} {units} ({estimate})"
        )

    def _advice(self, size: int) -> str:
        if size == 1:
            article = "an" if self._unit[0] == "i" else "a"
            return f"Let {article} {self._unit} do less, or raise deadline_seconds: it is the least that a dispatch can have"
        return f"Raise deadline_seconds, or let each {self._unit} do as much as the others"

    def _warn_of_long_units(self, count: int, taken: float) -> None:
        """Warn once where an item or a task leaves no time for a second one: then a wide device runs them one by one."""
        if count != 1 or self._warned_of_long_units or not self.deadline * MOST / 2 < taken <= self.deadline:
            return
        if self.session.program.items == 1:
            return
        self._warned_of_long_units = True
        unit = self._unit
        warnings.warn(
            f"one {unit} of {self.session.program.name} takes {taken:.3g} s on {self.session.device.spec}, and "
            f"deadline_seconds is {self.deadline:g}: {unit}s are dispatched one at a time. Raise deadline_seconds to "
            f"{3 * taken:.2g}, or let each {unit} do less",
            DeadlineWarning,
            stacklevel=_WARN_STACK - 1,
        )
