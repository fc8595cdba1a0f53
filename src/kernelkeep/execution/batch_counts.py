"""What an executor tells those who watch it: batches that are done, how long they took, and a span for each."""

from __future__ import annotations

import threading
import time
from typing import Any

from ..activity import spans
from ..activity.facts import Histogram
from .submission import Submission


class BatchCounts:
    """Counts of batches. Safe under threads; reading takes no lock."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._seconds = Histogram()
        self._failed = 0
        self._lock = threading.Lock()

    def settle(self, submission: Submission, problem: BaseException | None) -> None:
        """A batch is over."""
        now = time.perf_counter()
        began = submission.staged[0] or now
        if problem is None:
            self._seconds.add(now - began)
        else:
            with self._lock:
                self._failed += 1
        if spans.is_on():
            self._trace(submission, began, now, problem)

    def read(self) -> dict[str, float]:
        """How many are done, and how many failed."""
        return {"batches": sum(self._seconds.read()["counts"]), "failed_batches": self._failed}

    def histograms(self) -> dict[str, dict[str, Any]]:
        """From the copy of a batch's arrays to its result."""
        return {"batch_seconds": self._seconds.read()}

    def _trace(self, submission: Submission, began: float, ended: float, problem: BaseException | None) -> None:
        facts: dict[str, Any] = {
            "job": submission.work.name,
            "device": self._device,
            "batch": submission.number,
            "slot": submission.slot,
        }
        stages = [] if submission.times is None else submission.times.stages()
        ended = max([ended, *(stage.end for stage in stages)])
        batch = spans.record("executor.batch", began, ended, submission.parent, problem, **facts)
        for stage in stages:
            start = max(began, stage.start)
            spans.record(
                f"executor.{stage.engine}", start, max(start, stage.end), batch, job=stage.job, device=self._device
            )
