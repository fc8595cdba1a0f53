"""`strategy="auto"`: measure for a moment, choose, and say why."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ...errors import CompileError, Unsupported
from ..mailbox import Stopped
from ..run_options import RunOptions
from ..session import Session
from .trials import Trial, take_turns

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
    end = session.iteration + limit
    single = Trial(session, partial(session.slice, "step"), 1, end).grow(_TRIAL)
    if session.stopped is not Stopped.NO:
        return plain, "the work was done before anything could be measured"
    if single.seconds > _LONG_SECONDS:
        return plain, f"an iteration takes {single.seconds * 1e3:.1f} ms, beside which a dispatch costs nothing"
    thorough = limit >= _FEWEST_FOR_ALL
    # Until its tries are that long, a trial takes four times as many.
    enough = min(_LONG_TRIAL, limit // 32) if thorough else _TRIAL
    budget = max(1, min(_LONG_LOOP if thorough else _TRIAL, int(_TRIAL_SECONDS / single.seconds))) | 1
    loops: dict[str, Trial] = {}
    for kind in session.launches.loops if thorough else (form,):
        try:
            loops[kind] = Trial(session, partial(_slice, session, kind, budget), budget, end).grow(enough)
        except (CompileError, Unsupported) as error:
            return plain, f"many iterations cannot run in one dispatch here: {str(error).splitlines()[0]}"
        if session.stopped is not Stopped.NO:
            break
    chain = None
    if thorough and session.launches.can("chain"):
        chain = Trial(session, partial(session.chain, _CHAIN), _CHAIN, end).grow(enough)
    take_turns([*loops.values(), chain or single])
    fastest = min(loops, key=lambda kind: loops[kind].seconds)
    one, many = single.seconds, loops[fastest].seconds
    measured = (
        f"an iteration takes {one * 1e6:.1f} µs in dispatches of its own and {many * 1e6:.1f} µs inside a dispatch"
    )
    if chain is not None:
        one = chain.seconds
        measured += f", {one * 1e6:.1f} µs in a chain of dispatches"
        plain.expect(one)
    if many > one * _MARGIN:
        return plain, measured
    if options.deadline_seconds is not None:
        return Checkpointed(session, options), f"{measured}; the deadline bounds a dispatch"
    return Mega(session, options, form=fastest), measured


def _slice(session: Session, kind: str, budget: int) -> None:
    session.slice(kind, min(budget, session.largest_budget))
