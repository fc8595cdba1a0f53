"""`kk.run` and `kk.resume`: a state program from its beginning, or from a checkpoint, to its end.

A run goes on in turns of a fraction of a second. Between two turns nothing is under way on the device, and that is when
checkpoints begin, conditions are looked at, progress is told and Ctrl-C is heeded.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypedDict, Unpack

import numpy as np

from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..errors import ArgumentError
from .checkpoint import newest_checkpoint
from .checkpoint_claim import CheckpointClaim, CheckpointWarning, claim_for_run
from .checkpoint_family import real_path
from .checkpoint_match import check_fits, start_from
from .checkpoint_writer import CheckpointWriter
from .control import Stopped
from .heartbeat import beat
from .interrupt import Interruption
from .program import StateProgram
from .progress import Progress, progress_teller
from .report import RunReport
from .session import Session
from .snapshot import Snapshots
from .state import Start
from .strategies import Options, Strategy, check_strategy, make_strategy

__all__ = ["Run", "RunOptions", "resume", "run"]

_TURN_SECONDS = 0.05
_ENDLESS = 2**31 - 1  # iterations are counted in 31 bits
Until = Callable[["Run"], bool] | str | None


class RunOptions(TypedDict, total=False):
    """What `run` and `resume` take beside what is to be done; the defaults are in `docs/continuous.md`."""

    deadline_seconds: float | None
    checkpoint: str | os.PathLike[str] | None
    checkpoint_every: float | None
    checkpoint_iterations: int | None
    keep_checkpoints: int
    until: Until
    on_progress: Callable[[Progress], object] | None
    progress: bool
    ahead: int
    iterations_per_dispatch: int | None
    in_place: bool
    hang_seconds: float


@dataclass(frozen=True)
class _Wishes:
    """The options of a run, with their defaults."""

    deadline_seconds: float | None = None
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: float | None = 5.0
    checkpoint_iterations: int | None = None
    keep_checkpoints: int = 2
    until: Until = None
    on_progress: Callable[[Progress], object] | None = None
    progress: bool = False
    ahead: int = 64
    iterations_per_dispatch: int | None = None
    in_place: bool = False
    hang_seconds: float = 30.0

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> _Wishes:
        known = {field.name for field in fields(cls)}
        for name in options:
            if name not in known:
                raise ArgumentError(f"a run has no option {name!r}; it has: {', '.join(sorted(known))}")
        return cls(**options)

    def __post_init__(self) -> None:
        for name in ("deadline_seconds", "checkpoint_every", "hang_seconds"):
            _check_number(name, getattr(self, name), float)
        for name in ("checkpoint_iterations", "iterations_per_dispatch", "ahead", "keep_checkpoints"):
            _check_number(name, getattr(self, name), int)
        if (
            self.until is not None
            and not callable(self.until)
            and not (isinstance(self.until, str) and self.until.strip())
        ):
            raise ArgumentError(f"until is a function of the run, or a condition in C, not {self.until!r}")
        if self.on_progress is not None and not callable(self.on_progress):
            raise ArgumentError(f"on_progress is a function of a kk.Progress, not {self.on_progress!r}")

    def for_strategy(self, program: StateProgram, iterations: int | None) -> Options:
        asks = program.steers or "kk_iteration" in program.body or iterations is not None or self.until is not None
        return Options(
            self.deadline_seconds,
            self.ahead,
            self.iterations_per_dispatch,
            self.hang_seconds,
            splits_rounds=not asks,
            makes_checkpoints=self.checkpoint is not None,
        )

    @property
    def on_device(self) -> str | None:
        """The condition that the device looks at."""
        return self.until if isinstance(self.until, str) else None

    def asks_to_end(self, seen: Run) -> bool:
        return callable(self.until) and self.until(seen)


class Run:
    """A run that has ended, or is being looked at by a condition: its state on the device, and what it did.

    `state` maps names to device arrays. They stay until `close()`, or until the run is collected.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._report: RunReport | None = None

    @property
    def program(self) -> StateProgram:
        """What was run."""
        return self._session.program

    @property
    def state(self) -> Mapping[str, Array]:
        """The committed arrays, by name."""
        return self._session.state.copy(0)

    @property
    def iteration(self) -> int:
        """How many iterations the state has behind it, counted from the very beginning."""
        return self._session.iteration

    @property
    def phase(self) -> int:
        """The phase, as the body last set it."""
        return self._session.phase

    @property
    def report(self) -> RunReport:
        """What the run did; while it goes on, there is none."""
        if self._report is None:
            raise ArgumentError("the run is not over: there is no report yet")
        return self._report

    def close(self) -> None:
        """Free the state."""
        for array in self.state.values():
            array.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Run of {self.program.name} at iteration {self.iteration:,} on {self._session.device.spec}>"


def run(
    cache: ProgramCache,
    program: StateProgram,
    iterations: int | None = None,
    strategy: str = "auto",
    *,
    resume: bool | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Run a state program from its beginning, or from its checkpoint.

    It ends after `iterations`, when a body calls `kk_stop()`, when a queue is empty, or when `until` is true: a function of
    the `Run`, asked between turns, or a condition in C that the device looks at for each item after each iteration. With
    `checkpoint`, the state goes to that file every `checkpoint_every` seconds (or `checkpoint_iterations`), at the end, and on
    Ctrl-C, after which `KeyboardInterrupt` is raised as ever.

    `resume` says what happens where that file is there already. True goes on from it, as `kk.resume` does. None, the default,
    raises `CheckpointError`: nothing is overwritten. False starts again, and keeps the old file beside the new one, as
    `heat.kkpt.before-<time>`. One run at a time writes to a file: a second one is refused with `CheckpointError`.

    `deadline_seconds` bounds a dispatch where the strategy can; `ahead` bounds what *buffered* enqueues;
    `iterations_per_dispatch` is for *mega* and *buffered*; `in_place` saves a copy of the state and gives up the promise that
    a slice that dies on the device can be run again from there (`docs/continuous.md`).
    """
    wishes = _Wishes.of(options)
    _checked(program)
    if resume is not None and not isinstance(resume, bool):
        raise ArgumentError(f"resume must be True, False or None, got {resume!r}")
    if wishes.checkpoint is None:
        if resume:
            raise ArgumentError("resume=True needs checkpoint=…, the file to go on from")
        return _run(cache, program, Start.of(program), iterations, strategy, wishes, None, None)
    claim, goes_on = claim_for_run(wishes.checkpoint, resume)
    try:
        start, origin = Start.of(program), None
        if goes_on:
            start, origin = _newest(wishes.checkpoint, program, claim)
        return _run(cache, program, start, iterations, strategy, wishes, claim, origin)
    finally:
        claim.release()


def resume(
    path: str | os.PathLike[str],
    cache: ProgramCache,
    program: StateProgram,
    iterations: int | None = None,
    strategy: str = "auto",
    **options: Unpack[RunOptions],
) -> Run:
    """Go on from a checkpoint: in this process, a new one, on another device, on another backend.

    `iterations` are counted from the very beginning. New checkpoints go to the same file, or to `checkpoint`, which must not be
    there yet. Where the newest file is damaged, the one before it is used, with a `CheckpointWarning`. `CheckpointError` when
    there is none, or when it is of another program; it says what differs. Everything else is as in `run`.
    """
    _checked(program)
    wishes = _Wishes.of({"checkpoint": path, **options})
    if wishes.checkpoint is None:
        start, origin = _newest(path, program, None)
        return _run(cache, program, start, iterations, strategy, wishes, None, origin)
    same = real_path(wishes.checkpoint) == real_path(path)
    claim, _ = claim_for_run(wishes.checkpoint, True if same else None)
    try:
        start, origin = _newest(path, program, claim if same else None)
        return _run(cache, program, start, iterations, strategy, wishes, claim, origin)
    finally:
        claim.release()


def _check_number(name: str, value: Any, kind: type) -> None:
    numbers = int | np.integer if kind is int else int | float | np.number
    if value is not None and (not isinstance(value, numbers) or isinstance(value, bool) or not value > 0):
        raise ArgumentError(f"{name} is a positive {'integer' if kind is int else 'number'}, not {value!r}")


def _newest(path: Any, program: StateProgram, claim: CheckpointClaim | None) -> tuple[Start, str]:
    """Where a run begins that goes on from a checkpoint, and that in words; `claim` is on the same file, where one is."""
    found = newest_checkpoint(path, lambda header: check_fits(path, header, program))
    for sentence in found.passed:
        warnings.warn(f"{sentence}; an older checkpoint is used", CheckpointWarning, stacklevel=3)
    start = start_from(path, found.checkpoint, program)
    if claim is not None:
        claim.go_on(found.checkpoint.lineage if found.continues else "", holds_state=found.at_the_path)
    return start, f"{os.fspath(path)} at iteration {start.iteration:,}"


def _checked(program: Any) -> StateProgram:
    if not isinstance(program, StateProgram):
        raise ArgumentError(f"what is run is a kk.StateProgram, not a {type(program).__name__}")
    return program


def _run(
    cache: ProgramCache,
    program: StateProgram,
    start: Start,
    iterations: int | None,
    strategy_name: str,
    wishes: _Wishes,
    claim: CheckpointClaim | None,
    resumed_from: str | None,
) -> Run:
    check_strategy(strategy_name)
    if iterations is None and program.coupling != "queue" and wishes.until is None and "kk_stop" not in program.body:
        raise ArgumentError(
            f"{program.name} would never end: pass iterations=…, until=…, or call kk_stop() in its body"
        )
    whole = isinstance(iterations, int | np.integer) and not isinstance(iterations, bool)
    if iterations is not None and (not whole or iterations < 0):
        raise ArgumentError(f"iterations is a number from 0 on, not {iterations!r}")
    if iterations is not None and iterations > _ENDLESS:
        raise ArgumentError(f"iterations are counted in 31 bits: at most {_ENDLESS:,}")
    session = Session(cache, program, start, in_place=wishes.in_place, condition=wishes.on_device)
    keeper: _Keeper | None = None
    goal = _ENDLESS if iterations is None else int(iterations)
    begun = time.perf_counter()
    try:
        keeper = _Keeper(session, wishes, claim)
        with Interruption() as interruption, progress_teller(program.name, iterations, wishes.progress) as tell:
            strategy: Strategy | None = None
            reason = "nothing was left to do"
            ended = ""
            seen = Run(session)
            while not ended:
                ended = _why_over(session, goal, wishes, seen, interruption)
                if ended:
                    break
                if strategy is None:
                    strategy, reason = make_strategy(
                        strategy_name, session, wishes.for_strategy(program, iterations), goal - session.iteration
                    )
                else:
                    strategy.turn(goal - session.iteration, _TURN_SECONDS)
                beat(session.iteration)
                keeper.tend()
                step = Progress(session.iteration, iterations, time.perf_counter() - begun, session.pending_tasks)
                tell(step)
                if wishes.on_progress is not None:
                    wishes.on_progress(step)
            # Only what the program itself ended is over: more iterations, or another condition, may still be asked for.
            keeper.end(finished=ended in ("body", "empty"))
        seconds = time.perf_counter() - begun
        name = strategy.name if strategy is not None else strategy_name
        seen._report = _report(session, start, name, reason, ended, seconds, keeper, resumed_from)
    except BaseException as error:
        # A second Ctrl-C waits for nothing: what is being written is written, or the file before it counts.
        if keeper is not None and not isinstance(error, KeyboardInterrupt) and not session.lost:
            with contextlib.suppress(Exception):
                keeper.close()
        session.close()
        raise
    session.close()
    if interruption.happened:
        raise KeyboardInterrupt
    return seen


def _why_over(session: Session, goal: int, wishes: _Wishes, seen: Run, interruption: Interruption) -> str:
    if session.stopped is Stopped.EMPTY or (session.program.tasks and not session.pending_tasks):
        return "empty"
    if session.stopped is Stopped.BY_BODY:
        return "body"
    if session.stopped is Stopped.BY_CONDITION:
        return "until"
    if session.iteration >= goal:
        return "done"
    if interruption.happened:
        return "interrupted"
    if wishes.asks_to_end(seen):
        return "until"
    return ""


class _Keeper:
    """Sees to the checkpoints of a run."""

    def __init__(self, session: Session, wishes: _Wishes, claim: CheckpointClaim | None) -> None:
        self._session = session
        self._unchanged = claim is not None and claim.holds_state
        self._wishes = wishes
        self._claim = claim
        self.writer = None if claim is None else CheckpointWriter(claim, wishes.keep_checkpoints)
        self._snapshots = Snapshots(session)
        self._last_time = time.perf_counter()
        self._last_iteration = session.iteration

    def tend(self) -> None:
        """Between two turns: send off a snapshot that arrived, and begin one that is due."""
        writer, wishes, session = self.writer, self._wishes, self._session
        if writer is None or self._claim is None:
            return
        self._claim.begin()
        self._snapshots.poll(writer.submit)
        if self._snapshots.busy or writer.busy:
            return
        due = wishes.checkpoint_every is not None and time.perf_counter() - self._last_time >= wishes.checkpoint_every
        if wishes.checkpoint_iterations is not None:
            due = due or session.iteration - self._last_iteration >= wishes.checkpoint_iterations
        if due and session.iteration > self._last_iteration:
            self._begin(finished=False)

    def _begin(self, *, finished: bool) -> None:
        self._unchanged = False
        self._snapshots.take(finished=finished)
        self._last_time = time.perf_counter()
        self._last_iteration = self._session.iteration

    def end(self, *, finished: bool) -> None:
        """The last one, which is waited for."""
        if self.writer is None or self._claim is None:
            return
        self._claim.begin()
        if self._unchanged and self._session.iteration == self._last_iteration:
            self.close()
            return
        self._snapshots.finish()
        self._snapshots.poll(self.writer.submit)
        self._begin(finished=finished)
        self._snapshots.finish()
        self._snapshots.poll(self.writer.submit)
        self.close()

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self._snapshots.close()


def _report(
    session: Session,
    start: Start,
    strategy: str,
    reason: str,
    ended: str,
    seconds: float,
    keeper: _Keeper,
    resumed_from: str | None,
) -> RunReport:
    measured, writer = session.measured, keeper.writer
    gaps = np.percentile(measured.gaps, [50, 99]) if measured.gaps else (None, None)
    busy = sum(busy for busy, _ in measured.busy) / sum(whole for _, whole in measured.busy) if measured.busy else None
    return RunReport(
        program=session.program.name,
        device=session.device.spec,
        strategy=strategy,
        reason=reason,
        iterations=session.iteration - start.iteration,
        iteration=session.iteration,
        dispatches=measured.dispatches,
        seconds=seconds,
        stopped=ended,
        gap_p50_seconds=None if gaps[0] is None else float(gaps[0]),
        gap_p99_seconds=None if gaps[1] is None else float(gaps[1]),
        busy_share=busy,
        host_seconds_per_dispatch=float(np.median(measured.host_seconds)) if measured.host_seconds else None,
        longest_slice_seconds=measured.longest_slice,
        late_slices=measured.late_slices,
        checkpoints=writer.written if writer else 0,
        checkpoint_seconds=writer.seconds if writer else 0.0,
        checkpoint_bytes=writer.last.nbytes if writer and writer.last else 0,
        checkpoint_failures=writer.failed if writer else 0,
        resumed_from=resumed_from,
        tasks_done=session.taken - start.taken,
        overruns=measured.overruns,
        queue_grown=measured.queue_grown,
    )
