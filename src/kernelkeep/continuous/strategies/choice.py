"""`strategy="auto"`: measure for a moment, choose, and say why."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...errors import CompileError, Unsupported
from ..mailbox import Stopped
from ..run_options import RunOptions
from ..session import Session

if TYPE_CHECKING:
    from .base import Strategy

_TRIAL_SECONDS = 0.01
_TRIAL = 33  # iterations, at most
_LONG_TRIAL = 4096  # the same in a long run: the wait at the end takes as long as hundreds of small iterations
_LONG_LOOP = 257  # iterations in a dispatch of such a trial
_SMALL = 4096  # items that one group handles in good time
_LONG_SECONDS = 1e-3  # an iteration beside which a dispatch costs nothing
_MARGIN = 0.9  # another strategy must win clearly: a near-tie keeps the simpler one
_FEWEST = 200  # iterations that are worth measuring
_FEWEST_FOR_ALL = 20_000  # iterations that are worth measuring everything
_CHAIN = 128  # iterations, as *buffered* has them by default


def choose(session: Session, options: RunOptions, limit: int) -> tuple[Strategy, str]:
    """The strategy for this program on this device. What is measured is real work: the state advances by it.

    It takes a few hundredths of a second, beside compiling; an iteration that takes longer is measured once.
    """
    from .buffered import Buffered
    from .checkpointed import Checkpointed
    from .mega import Mega

    plain = Buffered(session, options)
    if limit < _FEWEST:
        return plain, f"{limit} iterations are too few to measure anything"
    form = session.launches.many
    width = max(session.program.items, session.pending_tasks)
    if form == "group" and width > _SMALL:
        what = f"{width:,} {'tasks' if session.program.tasks else 'items'}"
        return plain, f"groups cannot wait for each other here, and one group is too small for {what}"
    one = _seconds(session, partial(session.slice, "step"), 1, _TRIAL)
    if session.stopped is not Stopped.NO:
        return plain, "the work was done before anything could be measured"
    if one > _LONG_SECONDS:
        return plain, f"an iteration takes {one * 1e3:.1f} ms, beside which a dispatch costs nothing"
    thorough = limit >= _FEWEST_FOR_ALL
    trial = min(_LONG_TRIAL, limit // 16) if thorough else _TRIAL  # four times that is what a trial takes at most
    budget = max(1, min(_LONG_LOOP if thorough else _TRIAL, int(_TRIAL_SECONDS / one))) | 1
    loops: dict[str, float] = {}
    for kind in session.launches.loops if thorough else (form,):
        try:
            loops[kind] = _seconds(session, partial(_slice, session, kind, budget), budget, trial)
        except (CompileError, Unsupported) as error:
            return plain, f"many iterations cannot run in one dispatch here: {str(error).splitlines()[0]}"
        if session.stopped is not Stopped.NO:
            break
    fastest = min(loops, key=loops.__getitem__)
    many = loops[fastest]
    measured = (
        f"an iteration takes {one * 1e6:.1f} µs in dispatches of its own and {many * 1e6:.1f} µs inside a dispatch"
    )
    if thorough and session.launches.can("chain"):
        one = _seconds(session, partial(session.chain, _CHAIN), _CHAIN, trial)
        measured += f", {one * 1e6:.1f} µs in a chain of dispatches"
        plain.expect(one)
    if many > one * _MARGIN:
        return plain, measured
    if options.deadline_seconds is not None:
        return Checkpointed(session, options), f"{measured}; the deadline bounds a dispatch"
    return Mega(session, options, form=fastest), measured


def _slice(session: Session, kind: str, budget: int) -> None:
    session.slice(kind, min(budget, session.largest_budget))


def _seconds(session: Session, launch: Callable[[], None], budget: int, trial: int) -> float:
    """Seconds per iteration: the best of ever longer tries, up to `trial` iterations. The first one loads the code and does
    not count."""
    count, spent, first, best = 1, 0.0, True, math.inf
    while True:
        before = session.iteration
        start = time.perf_counter()
        for _ in range(count):
            launch()
        session.synchronize()
        passed = time.perf_counter() - start
        if session.stopped in (Stopped.OVERRUN, Stopped.OVERFLOW):
            session.mend(budget)
            continue
        taken = passed / max(1, session.iteration - before)
        if session.stopped is not Stopped.NO:
            return taken
        if first:
            first = False
            continue
        spent += passed
        best = min(best, taken)  # other processes only make a try longer
        if count * budget >= trial or spent > _TRIAL_SECONDS:
            return best
        count *= 2
