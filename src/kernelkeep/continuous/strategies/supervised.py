"""*supervised*: one group of the kernel does no work, but watches the others, the clock and the host.

It writes heartbeats and the workers' progress to host memory, and orders them to end the slice when the deadline comes or the
host asks for it. That needs groups that all make progress while one of them waits, which only a cooperative launch
promises.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ...devices.lanes import Mark
from ...errors import DeviceError, Unsupported
from ..mailbox import HostWord
from ..run_options import RunOptions
from ..session import Session
from .base import Strategy


class Supervised(Strategy):
    """Slices under a supervisor on the device."""

    name = "supervised"

    def __init__(self, session: Session, options: RunOptions) -> None:
        super().__init__(session, options)
        for capability, why in (
            ("forward_progress", "a supervisor needs groups that all make progress while one of them waits"),
            ("cooperative", "a supervisor needs all groups on the device at once"),
            ("mapped_ring", "a supervisor needs host memory that a running kernel reads and writes"),
        ):
            if not getattr(session.device.capabilities, capability):
                raise Unsupported(
                    capability, f"{why}, and {session.device.spec} does not promise it; strategy='auto' runs everywhere"
                )
        session.launches.require("grid")
        self._budget = 64
        self._last = (session.iteration, 0.0)

    def advance(self, limit: int, until: float) -> int:
        session = self.session
        seconds = min(self.options.deadline_seconds or 1.0, max(until - time.perf_counter(), 0.001))
        before, spent = self._last
        if session.iteration > before:
            session.read_clock_every(seconds * 0.01, spent / (session.iteration - before))
        size = session.budget(min(self._budget, limit))
        mailbox = session.launches.empty_mailbox()
        start = time.perf_counter()
        session.slice("grid", size, deadline_seconds=seconds, supervised=True)
        mark = session.mark()
        self._watch(mark, mailbox)
        taken = time.perf_counter() - start
        session.measured.note_slice(taken)
        self._last = (session.iteration, taken)
        if taken < seconds / 2 and size == self._budget:
            self._budget = min(self._budget * 4, 2**28)
        return size

    def _watch(self, mark: Mark, mailbox: np.ndarray[Any, Any]) -> None:
        """Wait for a slice, as long as its workers progress. The supervising group's own heartbeat tells which of them hangs."""
        session = self.session
        progress, beats, since = -1, -1, time.perf_counter()
        beaten = since
        while not mark.done:
            now = time.perf_counter()
            if int(mailbox[HostWord.BEATS]) != beats:
                session.measured.heartbeats += 1
                beats = int(mailbox[HostWord.BEATS])
                beaten = now
            if int(mailbox[HostWord.PROGRESS]) != progress:
                progress, since = int(mailbox[HostWord.PROGRESS]), now
            elif now - since > self.options.hang_seconds:
                mailbox[HostWord.STOP] = 1
                session.give_up(mark)
                who = "the workers make no progress" if now - beaten < 1 else "nothing on the device moves"
                raise DeviceError(
                    f"{session.program.name} on {session.device.spec} hangs at iteration {progress}: {who} for "
                    f"{now - since:.1f} s; the last heartbeat was number {beats}"
                )
            time.sleep(20e-6)
