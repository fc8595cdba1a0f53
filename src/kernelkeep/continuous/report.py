"""What a run did, measured: dispatches, the gaps between them, how busy the device was, checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .history import ProgressMoment, RunHistory, gaps_over_time

if TYPE_CHECKING:
    from ..words import StopReason
    from .checkpoints.writer import CheckpointWriter
    from .session import Session


class DeadlineWarning(UserWarning):
    """A dispatch took longer than `deadline_seconds`, or leaves no time for a second task; the run goes on."""


@dataclass
class Measured:
    """What is measured while a run goes on."""

    dispatches: int = 0
    overruns: int = 0
    queue_grown: int = 0
    gaps: list[float] = field(default_factory=list)  # seconds between two dispatches, of a sample of them
    gap_times: list[float] = field(default_factory=list)  # when they began, in seconds of time.perf_counter
    busy: list[tuple[float, float]] = field(default_factory=list)  # busy seconds and whole seconds, of the same sample
    longest_slice: float | None = None  # seconds, of slices that had a deadline
    late_slices: int = 0  # that took longer
    host_seconds: list[float] = field(default_factory=list)  # what enqueueing one dispatch cost the host
    heartbeats: int = 0
    snapshot_seconds: float = 0.0  # that the run waited for its state to come to the host, for checkpoints

    def note_slice(self, seconds: float) -> None:
        """Count a slice that had a deadline."""
        self.longest_slice = max(seconds, self.longest_slice or 0.0)


@dataclass(frozen=True)
class RunReport:
    """What a run did."""

    program: str  # its name
    device: str  # its spec, such as opencl:0
    strategy: str  # the one that was used
    reason: str  # why that one
    iterations: int  # of this run
    iteration: int  # where the state is, counted from the very beginning
    dispatches: int  # launches of the program's kernels
    seconds: float  # from start to end, by the clock
    stopped: StopReason  # "done", "body", "until", "empty", "interrupted"
    gap_p50_seconds: (
        float | None
    )  # the device's idle time between two dispatches, median; None where it was not measured
    gap_p99_seconds: float | None  # the same, 99th percentile
    busy_share: float | None  # the part of the time in which the device worked, 0 to 1
    host_seconds_per_dispatch: float | None  # the host's own time for a dispatch, median
    longest_slice_seconds: float | None  # of the dispatches that had a deadline
    late_slices: int  # that took longer than their deadline
    checkpoints: int  # how many were written
    checkpoint_seconds: float  # spent on all of them
    checkpoint_bytes: int  # the size of the last one
    checkpoint_failures: int  # how many could not be written
    resumed_from: str | None  # the checkpoint it began with; None from the beginning
    tasks_done: int  # of a queue
    overruns: int  # dispatches repeated in halves, because the device ends long loops
    queue_grown: int  # how often the queue became too small and grew
    checkpoint_written_bytes: int = 0  # to the disk, for all of them; what had not changed is not written again
    checkpoint_wait_seconds: float = 0.0  # that the run waited for all of them
    history: RunHistory = field(default=RunHistory(), repr=False, compare=False)  # how it went over time

    @classmethod
    def of(
        cls,
        session: Session,
        writer: CheckpointWriter | None,
        *,
        strategy: str,
        reason: str,
        iterations: int,
        seconds: float,
        stopped: StopReason,
        resumed_from: str | None,
        tasks_done: int,
        progress: Iterable[ProgressMoment] = (),
        began: float = 0.0,
    ) -> RunReport:
        """What a session that ended has measured, and what was written of it. `began` is a time of `time.perf_counter`."""
        measured = session.measured
        gaps = np.percentile(measured.gaps, [50, 99]).tolist() if measured.gaps else (None, None)
        busy, whole = (sum(times) for times in zip(*measured.busy, strict=True)) if measured.busy else (0.0, 0.0)
        return cls(
            program=session.program.name,
            device=session.device.spec,
            strategy=strategy,
            reason=reason,
            iterations=iterations,
            iteration=session.iteration,
            dispatches=measured.dispatches,
            seconds=seconds,
            stopped=stopped,
            gap_p50_seconds=gaps[0],
            gap_p99_seconds=gaps[1],
            busy_share=busy / whole if measured.busy else None,
            host_seconds_per_dispatch=float(np.median(measured.host_seconds)) if measured.host_seconds else None,
            longest_slice_seconds=measured.longest_slice,
            late_slices=measured.late_slices,
            checkpoints=writer.written if writer else 0,
            checkpoint_seconds=writer.seconds if writer else 0.0,
            checkpoint_bytes=writer.last.nbytes if writer and writer.last else 0,
            checkpoint_failures=writer.failed if writer else 0,
            checkpoint_written_bytes=writer.written_bytes if writer else 0,
            checkpoint_wait_seconds=measured.snapshot_seconds,
            resumed_from=resumed_from,
            tasks_done=tasks_done,
            overruns=measured.overruns,
            queue_grown=measured.queue_grown,
            history=RunHistory(
                tuple(progress),
                gaps_over_time(zip(measured.gap_times, measured.gaps, strict=True), began),
                tuple(
                    one._replace(seconds=one.seconds - began, end_seconds=one.end_seconds - began)
                    for one in (writer.moments.entries() if writer else ())
                ),
            ),
        )

    @property
    def gaps(self) -> tuple[float | None, float | None]:
        """The gap between dispatches in seconds: the middle one, and the one that 99 of 100 stay below."""
        return self.gap_p50_seconds, self.gap_p99_seconds

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from .html import report_html

        return report_html(self)

    def __str__(self) -> str:
        lines = [
            f"{self.program} on {self.device}: {self.iterations:,} iterations in {self.seconds:.3f} s ({self.stopped})",
            f"  strategy     {self.strategy}: {self.reason}",
            f"  dispatches   {self.dispatches:,}",
        ]
        if self.gap_p50_seconds is not None and self.gap_p99_seconds is not None:
            lines.append(
                f"  gaps         p50 {self.gap_p50_seconds * 1e6:.1f} µs, p99 {self.gap_p99_seconds * 1e6:.1f} µs"
            )
        if self.busy_share is not None:
            lines.append(f"  device busy  {self.busy_share:.1%}")
        if self.longest_slice_seconds is not None:
            late = f", {self.late_slices:,} outlived the deadline" if self.late_slices else ""
            lines.append(f"  slices       the longest took {self.longest_slice_seconds * 1e3:.1f} ms{late}")
        if self.tasks_done:
            lines.append(f"  tasks        {self.tasks_done:,}")
        if self.checkpoints or self.checkpoint_failures:
            failed = f", {self.checkpoint_failures} failed" if self.checkpoint_failures else ""
            waited = (
                f"; the run waited {self.checkpoint_wait_seconds * 1e3:.1f} ms for them" if self.checkpoints else ""
            )
            lines.append(
                f"  checkpoints  {self.checkpoints} written, {self.checkpoint_bytes:,} bytes each{failed}{waited}"
            )
        if self.resumed_from:
            lines.append(f"  resumed from {self.resumed_from}")
        return "\n".join(lines)
