"""What every strategy has: a session that it advances in turns, and a sample of its dispatches that is timed."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import ClassVar

from ...devices.lanes import Mark
from ...errors import KernelFault
from ..mailbox import Stopped
from ..run_options import RunOptions
from ..session import Session

_SAMPLES = 4096
_TIMED_EVERY = 8  # dispatches


class Strategy(ABC):
    """Advances a session in turns. After a turn nothing runs on the device, and the session knows how far it came."""

    name: ClassVar[str]

    def __init__(self, session: Session, options: RunOptions) -> None:
        self.session = session
        self.options = options
        self._burst = 1
        self._samples: list[tuple[Mark, Mark, Mark]] = []  # before a dispatch, after it, before the next

    @abstractmethod
    def advance(self, limit: int, until: float) -> int:
        """Dispatch at most `limit` iterations, none of them after the time `until`; returns the size of a slice."""

    def turn(self, limit: int, seconds: float) -> None:
        """Advance by at most `limit` iterations, for about `seconds`."""
        session = self.session
        if session.program.tasks or session.steers:
            # The device may end the run. What is dispatched after that does nothing, and costs time.
            limit = min(limit, self._burst)
            self._burst = min(self._burst * 2, 256)
        try:
            slice_size = self.advance(limit, time.perf_counter() + seconds)
        except KernelFault as fault:
            from ..faults import in_words_of_body  # only where the reference device found a bug

            raise in_words_of_body(fault, session.program) from None
        session.synchronize()
        self._settle_samples()
        if session.stopped in (Stopped.OVERRUN, Stopped.OVERFLOW):
            session.mend(slice_size)

    def _settle_samples(self) -> None:
        measured, samples = self.session.measured, self._samples
        if samples and self.session.lanes.timed and len(measured.gaps) < _SAMPLES:
            times = self.session.lanes.times([mark for sample in samples for mark in sample])
            floor = self.session.mark_seconds()
            for start, end, following in zip(times[::3], times[1::3], times[2::3], strict=True):
                if not start or not following:  # nobody saw when the mark passed
                    continue
                gap = max(0.0, following - end - floor)
                busy = max(0.0, end - start - floor)
                measured.gaps.append(gap)
                measured.gap_times.append(end)
                measured.busy.append((busy, max(busy + gap, 1e-12)))
        samples.clear()

    def stream(
        self,
        launch: Callable[[int], None],
        budget: int,
        limit: int,
        until: float,
        ahead: int,
        *,
        whole: bool = False,
        prepare_next: Callable[[], None] | None = None,
    ) -> int:
        """Dispatch slices of `budget` iterations, with at most `ahead` waiting behind the one that runs; returns how many.

        `whole`: nothing less than the budget can be launched. `prepare_next` is called while a slice runs.
        """
        session, lane = self.session, self.session.lanes.compute
        under_way: deque[Mark] = deque()
        sampling: list[Mark] = []
        done = number = 0
        host = session.measured.host_seconds
        while done < limit:
            size = min(budget, limit - done)
            if whole and size < budget:
                break
            timed = number % _TIMED_EVERY == 0 and len(session.measured.gaps) < _SAMPLES
            if timed or len(sampling) == 2:
                sampling.append(lane.mark())
                if len(sampling) == 3:
                    self._samples.append((sampling[0], sampling[1], sampling[2]))
                    sampling = [sampling[2]] if timed else []
            start = time.perf_counter()
            launch(size)
            spent = time.perf_counter()
            mark = session.mark(timed=timed)
            if timed:
                host.append((spent - start) / (size if whole else 1))
                sampling = [*sampling[-1:], mark]
            under_way.append(mark)
            done += size
            number += 1
            if prepare_next is not None and done < limit:
                prepare_next()
            while len(under_way) > ahead:
                session.wait(under_way.popleft())
            if spent > until:
                break
        return done
