"""A run: what the caller gets of it, and the loop that takes it to its end.

The loop advances in turns of a fraction of a second. Between two turns nothing runs on the device: that is when checkpoints
begin, conditions are checked, progress is reported and signals are obeyed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Self

from ..activity.spans import span
from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..errors import ArgumentError
from ..progress.reporter import Reporter, reported
from ..words import StopReason
from .checkpoints.claim import CheckpointClaim
from .checkpoints.keeper import CheckpointKeeper
from .diary_notes import note_failed_run, note_run
from .heartbeat import beat
from .history import ProgressMoment, Thinned
from .initial_state import InitialState
from .interruption import Interruption
from .live_run import LiveRun
from .mailbox import Stopped
from .program import StateProgram
from .report import RunReport
from .run_options import RunOptions
from .session import Session
from .strategies import Strategy, make_strategy

_PREPARING = "loading or compiling"  # before the first dispatch
_TURN_SECONDS = 0.05


class Run:
    """A run that has ended, or that an `until` function gets: its state on the device, and what it did.

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
        """How many iterations are complete, counted from the very beginning."""
        return self._session.iteration

    @property
    def phase(self) -> int:
        """The phase, as the body last set it."""
        return self._session.phase

    @property
    def is_over(self) -> bool:
        """Whether it has ended, so that there is a report."""
        return self._report is not None

    @property
    def report(self) -> RunReport:
        """What the run did; `ArgumentError` while it goes on."""
        if self._report is None:
            raise ArgumentError("the run is not over: there is no report yet")
        return self._report

    def steer(self, **arrays: Any) -> None:
        """Overwrite arrays of the state, in an `until` function: they hold from the next iteration on, and are in checkpoints.

        What changes during a run belongs into an array that the body only reads; a new value has its shape and dtype.
        """
        if self._report is not None:
            raise ArgumentError("the run is over: it can be steered only while it goes, by the function in until=")
        self._session.state.write(arrays)
        self._session.steered = True

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

    def _repr_html_(self) -> str:
        from .html import run_html

        return run_html(self)


def run_to_end(
    cache: ProgramCache,
    program: StateProgram,
    start: InitialState,
    options: RunOptions,
    claim: CheckpointClaim | None = None,
    resumed_from: str | None = None,
) -> Run:
    """Run a program until something ends it; its checkpoints go to the files of `claim`."""
    with span("run", program=program.name, device=cache.device.spec, resumed=resumed_from is not None) as current:
        run = _run_to_end(cache, program, start, options, claim, resumed_from)
        report = run.report
        current.set(strategy=report.strategy, iterations=report.iterations, stopped=report.stopped)
        return run


def _reported(program: StateProgram, start: InitialState, options: RunOptions) -> AbstractContextManager[Reporter]:
    return reported(
        program.name,
        options.iterations,
        options.progress,
        unit="iterations",
        first=start.iteration,
        listener=options.on_progress,
    )


def _run_to_end(
    cache: ProgramCache,
    program: StateProgram,
    start: InitialState,
    options: RunOptions,
    claim: CheckpointClaim | None,
    resumed_from: str | None,
) -> Run:
    session = Session(cache, program, start, options)
    keeper: CheckpointKeeper | None = None
    goal = options.goal
    began = time.perf_counter()
    interruption = Interruption(saves=claim is not None)
    run = Run(session)
    progress: Thinned[ProgressMoment] = Thinned()
    progress.add(ProgressMoment(0.0, session.iteration))
    with interruption, LiveRun(session, options) as shown:
        try:
            keeper = shown.keeper = CheckpointKeeper(session, options, claim)
            strategy: Strategy | None = None
            reason = _nothing_left(start, options)
            with _reported(program, start, options) as report:
                asks = True
                while not (ended := _why_over(session, options, interruption)):
                    # Of a turn that was not the last: the last state has a checkpoint of its own. Before `until`, which may
                    # steer: a run that goes on from it asks once more.
                    keeper.begin_if_due()
                    if asks and options.asks_to_end(run):
                        ended = "until"
                        break
                    before, seen = session.iteration, (session.iteration, session.taken)
                    limit = options.next_stop(before, goal) - before
                    if strategy is None:
                        report.begin(_PREPARING)
                        strategy, reason = make_strategy(session, options, limit)
                        shown.strategy = strategy.name
                        asks = (session.iteration, session.taken) != seen  # else `until` has been asked
                    else:
                        strategy.turn(limit, _TURN_SECONDS)
                        asks = True
                    beat(session.iteration)
                    # Before a checkpoint of this iteration: a run that is resumed from it does not call on_state again.
                    if (
                        options.on_state is not None
                        and session.iteration > before
                        and options.is_state_due(session.iteration)
                    ):
                        options.on_state(session.iteration, {key: array.numpy() for key, array in run.state.items()})
                    seconds = time.perf_counter() - began
                    progress.add(ProgressMoment(seconds, session.iteration))
                    report.reach(
                        session.iteration,
                        _doing(session, start, strategy),
                        pending_tasks=session.pending_tasks,
                    )
            # Only what the program itself ended is over: more iterations, or another condition, may still be asked for.
            keeper.end(finished=ended in ("body", "empty"))
            run._report = RunReport.of(
                session,
                keeper.writer,
                strategy=options.strategy if strategy is None else strategy.name,
                reason=reason,
                iterations=session.iteration - start.iteration,
                seconds=time.perf_counter() - began,
                stopped=ended,
                resumed_from=resumed_from,
                tasks_done=session.taken - start.taken,
                progress=(*progress.entries(), ProgressMoment(time.perf_counter() - began, session.iteration)),
                began=began,
            )
            note_run(cache, run.report, None if claim is None else claim.shown)
        except BaseException as error:
            # A second signal waits for nothing: what is being written is written, or the file before it counts.
            if keeper is not None and not interruption.hurried:
                keeper.end_after(error)
            done, seconds = session.iteration - start.iteration, time.perf_counter() - began
            named = None if claim is None else claim.shown
            note_failed_run(cache, program.name, session.iteration, done, seconds, error, named)
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
    return run


def _nothing_left(start: InitialState, options: RunOptions) -> str:
    """Why there may be no strategy: the reason in the report of a run that dispatches nothing."""
    if options.iterations is None or not 0 < start.iteration >= options.iterations:
        return "nothing was left to do"
    return (
        f"nothing was left to do: iteration {start.iteration:,} was reached before, and iterations={options.iterations:,} counts "
        "from the very beginning"
    )


def _doing(session: Session, start: InitialState, strategy: Strategy) -> str:
    if session.iteration == start.iteration and not session.taken > start.taken:
        return _PREPARING
    return f"{session.pending_tasks:,} tasks wait" if session.pending_tasks else strategy.name


def _why_over(session: Session, options: RunOptions, interruption: Interruption) -> StopReason | None:
    """Why there is no further turn, but for the caller's `until` function."""
    if session.stopped is Stopped.EMPTY or (session.program.tasks and not session.pending_tasks):
        return "empty"
    if session.stopped is Stopped.BY_BODY:
        return "body"
    if session.stopped is Stopped.BY_CONDITION:
        return "until"
    if session.iteration >= options.goal:
        return "done"
    if interruption.happened:
        return "interrupted"
    return None
