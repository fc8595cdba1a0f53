"""`kk.run` and `kk.resume`: a state program from its beginning, or from a checkpoint, to its end.

A run goes on in turns of a fraction of a second. Between two turns nothing is under way on the device, and that is when
checkpoints begin, conditions are looked at, progress is told and Ctrl-C is heeded.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from typing import Any, Self, Unpack

import numpy as np

from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..errors import ArgumentError
from .checkpoints.checkpoint import Checkpoint
from .checkpoints.claim import CheckpointClaim, CheckpointWarning, claim_for_run, claim_new
from .checkpoints.family import real_path
from .checkpoints.files import newest_checkpoint
from .checkpoints.keeper import CheckpointKeeper
from .checkpoints.match import check_fits, start_from
from .heartbeat import beat
from .initial_state import start_of
from .interruption import Interruption
from .mailbox import Stopped
from .program import StateProgram
from .progress import Progress, progress_teller
from .report import RunReport
from .run_options import RunOptions, Settings
from .session import Session
from .state import InitialState
from .strategies import Strategy, check_strategy, make_strategy

__all__ = ["Run", "RunOptions", "resume", "run"]

_TURN_SECONDS = 0.05
_ENDLESS = 2**31 - 1  # iterations are counted in 31 bits


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
    initial_state: Mapping[str, Any] | Checkpoint | None = None,
    **options: Unpack[RunOptions],
) -> Run:
    """Run a state program from its beginning, from its checkpoint, or from `initial_state`.

    It ends after `iterations`, when a body calls `kk_stop()`, when a queue is empty, or when `until` is true: a function of
    the `Run`, asked between turns, or a condition in C that the device looks at for each item after each iteration. With
    `checkpoint`, the state goes to that file every `checkpoint_every` seconds (or `checkpoint_iterations`), and however the run
    ends: also by Ctrl-C, SIGTERM, SIGHUP or an error, which then do what they always do.

    `on_state(iteration, state)` is called with NumPy copies of the arrays after every `state_iterations` iterations, exactly.

    `resume` says what happens where that file is there already. True goes on from it, as `kk.resume` does. None, the default,
    raises `CheckpointError`: nothing is overwritten. False starts again, and keeps the old file beside the new one, as
    `heat.kkpt.before-<time>`. One run at a time writes to a file: a second one is refused with `CheckpointError`.

    `initial_state` takes the place of the program's own arrays: a mapping with the same names, dtypes and shapes, which begins at
    iteration 0, or a checkpoint from `kk.read_checkpoint`, which goes on at its own iteration, phase and tasks. That is how
    work goes on with changed scalars or another body. A checkpoint that `resume=True` finds comes first.

    `deadline_seconds` bounds a dispatch where the strategy can; `ahead` bounds what *buffered* enqueues;
    `iterations_per_dispatch` is for *mega* and *buffered*; `in_place` saves a copy of the state and gives up the promise that
    a slice that dies on the device can be run again from there (`docs/continuous.md`).
    """
    settings = Settings.of(options)
    _checked(program)
    if resume is not None and not isinstance(resume, bool):
        raise ArgumentError(f"resume must be True, False or None, got {resume!r}")
    if settings.checkpoint is None:
        if resume:
            raise ArgumentError("resume=True needs checkpoint=…, the file to go on from")
        return _run(cache, program, start_of(program, initial_state), iterations, strategy, settings, None, None)
    start, origin = start_of(program, initial_state), None
    claim, goes_on = claim_for_run(settings.checkpoint, resume)
    try:
        if goes_on:
            start, origin = _newest(settings.checkpoint, program, claim)
        return _run(cache, program, start, iterations, strategy, settings, claim, origin)
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
    settings = Settings.of({"checkpoint": path, **options})
    if settings.checkpoint is None:
        start, origin = _newest(path, program, None)
        return _run(cache, program, start, iterations, strategy, settings, None, origin)
    if real_path(settings.checkpoint) == real_path(path):
        claim, same = claim_for_run(path, True)[0], True
    else:
        claim, same = claim_new(settings.checkpoint)
    try:
        start, origin = _newest(settings.checkpoint if same else path, program, claim if same else None)
        return _run(cache, program, start, iterations, strategy, settings, claim, origin)
    finally:
        claim.release()


def _newest(path: Any, program: StateProgram, claim: CheckpointClaim | None) -> tuple[InitialState, str]:
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
    start: InitialState,
    iterations: int | None,
    strategy_name: str,
    settings: Settings,
    claim: CheckpointClaim | None,
    resumed_from: str | None,
) -> Run:
    check_strategy(strategy_name)
    if iterations is None and program.coupling != "queue" and settings.until is None and "kk_stop" not in program.body:
        raise ArgumentError(
            f"{program.name} would never end: pass iterations=…, until=…, or call kk_stop() in its body"
        )
    whole = isinstance(iterations, int | np.integer) and not isinstance(iterations, bool)
    if iterations is not None and (not whole or iterations < 0):
        raise ArgumentError(f"iterations is a number from 0 on, not {iterations!r}")
    if iterations is not None and iterations > _ENDLESS:
        raise ArgumentError(f"iterations are counted in 31 bits: at most {_ENDLESS:,}")
    session = Session(cache, program, start, in_place=settings.in_place, condition=settings.on_device)
    keeper: CheckpointKeeper | None = None
    goal = _ENDLESS if iterations is None else int(iterations)
    begun = time.perf_counter()
    interruption = Interruption(saves=claim is not None)
    seen = Run(session)
    with interruption:
        try:
            keeper = CheckpointKeeper(session, settings, claim)
            strategy: Strategy | None = None
            reason = "nothing was left to do"
            with progress_teller(program.name, iterations, settings.progress) as tell:
                while not (ended := _why_over(session, goal, settings, seen, interruption)):
                    before = session.iteration
                    limit = settings.next_stop(before, goal) - before
                    if strategy is None:
                        strategy, reason = make_strategy(
                            strategy_name, session, settings.for_strategy(program, iterations), limit
                        )
                    else:
                        strategy.turn(limit, _TURN_SECONDS)
                    beat(session.iteration)
                    # Before a checkpoint of this iteration: what goes on from that does not show it again.
                    if settings.on_state is not None and session.iteration == settings.next_stop(before, _ENDLESS):
                        settings.on_state(session.iteration, {key: array.numpy() for key, array in seen.state.items()})
                    keeper.tend()
                    step = Progress(session.iteration, iterations, time.perf_counter() - begun, session.pending_tasks)
                    tell(step)
                    if settings.on_progress is not None:
                        settings.on_progress(step)
            # Only what the program itself ended is over: more iterations, or another condition, may still be asked for.
            keeper.end(finished=ended in ("body", "empty"))
            seconds = time.perf_counter() - begun
            name = strategy.name if strategy is not None else strategy_name
            seen._report = _report(session, start, name, reason, ended, seconds, keeper, resumed_from)
        except BaseException as error:
            # A second signal waits for nothing: what is being written is written, or the file before it counts.
            if keeper is not None and not interruption.hurried:
                keeper.end_after(error)
            session.close()
            raise
        finally:
            if interruption.ends_process:
                if claim is not None:
                    claim.release()
                interruption.pass_on()
    note = keeper.note()
    session.close()
    try:
        interruption.pass_on()
    except KeyboardInterrupt as interrupt:
        if note:
            interrupt.add_note(note)
        raise
    return seen


def _why_over(session: Session, goal: int, settings: Settings, seen: Run, interruption: Interruption) -> str:
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
    if settings.asks_to_end(seen):
        return "until"
    return ""


def _report(
    session: Session,
    start: InitialState,
    strategy: str,
    reason: str,
    ended: str,
    seconds: float,
    keeper: CheckpointKeeper,
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
