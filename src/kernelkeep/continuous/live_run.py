"""What a run that goes on tells those who watch it."""

from __future__ import annotations

import time
from typing import Any, Self

from ..activity import live
from ..activity.facts import Facts
from .checkpoints.keeper import CheckpointKeeper
from .run_options import RunOptions
from .session import Session

_GAPS = 512  # the newest ones that are looked at


class LiveRun:
    """A run, for the block in which it goes on. Reading it asks no device and takes no lock."""

    def __init__(self, session: Session, options: RunOptions) -> None:
        self.keeper: CheckpointKeeper | None = None
        self.strategy: str = options.strategy
        self._session = session
        self._options = options
        self._start = session.iteration, session.taken

    def __enter__(self) -> Self:
        live.add("run", self, LiveRun.facts)
        return self

    def __exit__(self, *exc: object) -> None:
        live.remove(self)

    def facts(self) -> Facts:
        """What it says of itself."""
        session, measured = self._session, self._session.measured
        writer = None if self.keeper is None else self.keeper.writer
        counts: dict[str, float] = {
            "iterations": session.iteration - self._start[0],
            "dispatches": measured.dispatches,
            "late_slices": measured.late_slices,
            "tasks": session.taken - self._start[1],
            "checkpoints": 0 if writer is None else writer.written,
            "failed_checkpoints": 0 if writer is None else writer.failed,
            "checkpoint_bytes": 0 if writer is None else writer.nbytes,
        }
        gaps = sorted(measured.gaps[-_GAPS:])
        now: dict[str, Any] = {
            "iteration": session.iteration,
            "goal": self._options.iterations,
            "pending_tasks": session.pending_tasks,
            "gap_p50_seconds": gaps[len(gaps) // 2] if gaps else None,
            "gap_p99_seconds": gaps[len(gaps) * 99 // 100] if gaps else None,
            "busy_share": _share(measured.busy[-_GAPS:]),
            "checkpoint": None if writer is None else writer.where,
            "checkpoint_iteration": None if writer is None else writer.last_iteration,
            "checkpoint_age_seconds": None,
            "writing_checkpoint": writer is not None and writer.busy,
            "checkpoint_problem": None if writer is None or writer.problem is None else str(writer.problem),
        }
        if writer is not None and writer.last_time is not None:
            now["checkpoint_age_seconds"] = max(0.0, time.monotonic() - writer.last_time)
        about = {"device": session.device.spec, "name": session.program.name, "strategy": self.strategy}
        histograms = {} if writer is None else {"checkpoint_seconds": writer.times.read()}
        return Facts(about, counts, now, histograms)


def _share(busy: list[tuple[float, float]]) -> float | None:
    whole = sum(both for _, both in busy)
    return sum(seconds for seconds, _ in busy) / whole if whole else None
