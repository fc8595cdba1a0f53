"""Reporting progress from inside a long call.

    with reported("preloading", len(programs), progress, unit="programs") as report:
        for program in programs:
            report.begin(f"now {program.name}")
            …
            report.step()

`progress` is what the user passed: True shows it, False does not, and a function is called with a `Progress` each time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import ArgumentError
from .displays import Display, open_display
from .progress import Progress

Wanted = bool | Callable[[Progress], object]  # what `progress=` takes
_SAMPLE_SECONDS = 0.5
_WINDOW_SECONDS = 10.0  # the rate is that of so long a time


def check_wanted(progress: Any) -> None:
    """`ArgumentError` for what `progress=` does not take."""
    if not isinstance(progress, bool) and not callable(progress):
        raise ArgumentError(f"progress must be True, False or a function of a kk.Progress, got {progress!r}")


@contextlib.contextmanager
def reported(
    title: str,
    total: int | None,
    progress: Wanted,
    *,
    unit: str,
    first: int = 0,
    limit_seconds: float | None = None,
    listener: Callable[[Progress], object] | None = None,
) -> Iterator[Reporter]:
    """A reporter for a block. Counting begins at `first`; `listener` is one more function to call.

    After `limit_seconds` the work ends, however much is done.
    """
    check_wanted(progress)
    displays: list[Display] = [_Listener(one) for one in (progress, listener) if callable(one)]
    if progress is True:
        shown = open_display(title)
        displays += [] if shown is None else [shown]
    reporter = Reporter(title, total, unit, first, displays, limit_seconds)
    is_whole = False
    try:
        yield reporter
        is_whole = True
    except GeneratorExit:
        is_whole = True  # who asked for results has enough of them
        raise
    finally:
        reporter.end(is_whole)


class _Listener(Display):
    """A function of the user. What it raises ends the call."""

    shows_beginnings = False

    def __init__(self, function: Callable[[Progress], object]) -> None:
        self._function = function

    def show(self, progress: Progress) -> None:
        self._function(progress)


class Reporter:
    """Counts what is done and has it shown now and then. Safe under threads."""

    def __init__(
        self,
        title: str,
        total: int | None,
        unit: str,
        first: int,
        displays: list[Display],
        limit_seconds: float | None = None,
    ) -> None:
        self._limit = limit_seconds
        self._title = title
        self._total = total
        self._unit = unit
        self._first = self._done = first
        self._failed = self._pending = 0
        self._doing = ""
        self._displays = displays
        self._began = time.perf_counter()
        self._samples: deque[tuple[float, int]] = (
            deque()
        )  # from the first thing done on: before it, programs are compiled
        self._lock = threading.RLock()
        self._due = [self._began + display.first_seconds for display in displays]
        self._shows_what_begins = [False] * len(displays)  # whether the last frame did

    def begin(self, doing: str) -> None:
        """Say what is being done now."""
        with self._lock:
            self._doing = doing
            self._show(begins=True)

    def step(self, doing: str | None = None, failed: bool = False) -> None:
        """One more is done."""
        with self._lock:
            self._done += 1
            self._failed += failed
            self._doing = self._doing if doing is None else doing
            self._show()

    def reach(
        self, done: int, doing: str = "", *, failed: int = 0, pending_tasks: int = 0, total: int | None = None
    ) -> None:
        """So many are done."""
        with self._lock:
            self._done, self._doing, self._failed, self._pending = done, doing, failed, pending_tasks
            self._total = self._total if total is None else total
            self._show()

    def end(self, is_whole: bool) -> None:
        """Nothing more is done."""
        with self._lock:
            if self._displays:
                last = self._progress(time.perf_counter())
                for display in self._displays:
                    display.end(last, is_whole)

    def _show(self, begins: bool = False) -> None:
        if not self._displays:
            return
        now = time.perf_counter()
        if self._done > self._first and (not self._samples or now - self._samples[-1][0] >= _SAMPLE_SECONDS):
            self._samples.append((now, self._done))
            while now - self._samples[0][0] > _WINDOW_SECONDS and len(self._samples) > 2:
                self._samples.popleft()
        progress = None
        for index, display in enumerate(self._displays):
            if begins and not display.shows_beginnings:
                continue
            # What begins now may take long. Without a frame of its own, the one before it would stand there all the time.
            is_news = begins and display.draws_over and not self._shows_what_begins[index]
            if is_news or now >= self._due[index]:
                progress = progress or self._progress(now)
                display.show(progress)
                self._shows_what_begins[index] = begins
                self._due[index] = time.perf_counter() + display.pause_seconds(progress)

    def _progress(self, now: float) -> Progress:
        since, before = self._samples[0] if self._samples else (now, self._done)
        # A rate of the first moments would be that of what is done once.
        knows = self._done > before and now - since >= _SAMPLE_SECONDS
        rate = (self._done - before) / (now - since) if knows else 0.0
        return Progress(
            self._title,
            self._done,
            self._total,
            now - self._began,
            self._unit,
            rate,
            self._doing,
            self._failed,
            self._pending,
            self._limit,
        )
