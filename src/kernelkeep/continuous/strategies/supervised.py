"""*supervised*: one group of the kernel does no work, but watches the others, the clock and the host.

It counts heartbeats into host memory, tells how far the workers are, and orders them to end the slice when the deadline comes
or the host asks for it. That needs groups that all make progress while one of them waits, which only a cooperative launch
promises.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ...devices.lanes import Mark
from ...errors import DeviceError, Unsupported
from ..session import Session
from .base import Options, Strategy

__all__ = ["Supervised"]

_BEATS, _PROGRESS, _STOP = 0, 32, 64  # words of the mailbox, each on a line of its own


class Supervised(Strategy):
    """Slices under a supervisor on the device."""

    name = "supervised"

    def __init__(self, session: Session, options: Options) -> None:
        super().__init__(session, options)
        for capability, why in (
            ("forward_progress", "a supervisor needs groups that all make progress while one of them waits"),
            ("cooperative", "a supervisor needs all groups on the device at once"),
            ("mapped_ring", "a supervisor needs host memory that a running kernel reads and writes"),
        ):
            if not getattr(session.device.capabilities, capability):
                raise Unsupported(capability, f"{why}, and {session.device.spec} does not promise it")
        session.require("grid")
        self._budget = 64
        self._last = (session.iteration, 0.0)

    def _advance(self, limit: int, until: float) -> int:
        session = self.session
        seconds = min(self.options.deadline_seconds or 1.0, max(until - time.perf_counter(), 0.001))
        before, spent = self._last
        if session.iteration > before:
            session.look_every(seconds * 0.01, spent / (session.iteration - before))
        size = session.budget(min(self._budget, limit))
        mailbox = session.prepare_mailbox()
        start = time.perf_counter()
        session.slice("grid", size, deadline_seconds=seconds, supervised=True)
        mark = session.mark()
        self._watch(mark, mailbox)
        taken = time.perf_counter() - start
        session.measured.slices.append(taken)
        self._last = (session.iteration, taken)
        if taken < seconds / 2 and size == self._budget:
            self._budget = min(self._budget * 4, 2**28)
        return size

    def _watch(self, mark: Mark, mailbox: np.ndarray[Any, Any]) -> None:
        """Wait for a slice, as long as its heart beats."""
        session = self.session
        seen, since = -1, time.perf_counter()
        while not mark.done:
            beats = int(mailbox[_BEATS])
            now = time.perf_counter()
            if beats != seen:
                session.measured.heartbeats += 1
                seen, since = beats, now
            elif now - since > self.options.hang_seconds:
                at = int(mailbox[_PROGRESS])
                raise DeviceError(
                    f"{session.program.name} on {session.device.spec} hangs: no heartbeat for {now - since:.1f} s, "
                    f"the last one, number {beats}, at iteration {at}"
                )
            time.sleep(20e-6)

    def stop(self) -> None:
        """Have the slice that runs end as soon as its iteration is over. May be called from another thread."""
        if self.session.mailbox is not None:
            self.session.mailbox[_STOP] = 1
