"""`strategy="auto"`: measure for a moment, choose, and say why."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..control import Stopped
from ..session import Session
from .base import Options

if TYPE_CHECKING:
    from .base import Strategy

__all__ = ["choose"]

_TRIAL = 33  # iterations
_SMALL = 4096  # items that one group handles in good time
_MARGIN = 0.9  # another strategy must win clearly: a near-tie keeps the simpler one


def choose(session: Session, options: Options, limit: int) -> tuple[Strategy, str]:
    """The strategy for this program on this device. What is measured is real work: the state advances by it."""
    from .buffered import Buffered
    from .checkpointed import Checkpointed
    from .mega import Mega

    if limit < 6 * _TRIAL:
        return Buffered(session, options), f"{limit} iterations are too few to measure anything"
    form = session.many
    if form == "group" and session.program.items > _SMALL:
        what = "tasks" if session.program.tasks else f"{session.program.items} items"
        reason = (
            f"items depend on each other and groups cannot wait for each other here: one group is too small for {what}"
        )
        return Buffered(session, options), reason
    one = _seconds(session, "step", 1)
    if session.stopped is not Stopped.NO:
        return Buffered(session, options), "the work was done before anything could be measured"
    many = _seconds(session, form, _TRIAL)
    told = f"an iteration takes {one * 1e6:.1f} µs in dispatches of its own and {many * 1e6:.1f} µs inside a dispatch"
    if many > one * _MARGIN:
        return Buffered(session, options), told
    if options.deadline_seconds is not None:
        return Checkpointed(session, options), f"{told}; the deadline bounds a dispatch"
    return Mega(session, options), told


def _seconds(session: Session, kind: str, budget: int) -> float:
    """Seconds of one iteration, the second of two tries: the first loads the code."""
    taken = 0.0
    for _ in range(2):
        before = session.iteration
        start = time.perf_counter()
        for _ in range(_TRIAL // budget):
            session.slice(kind, min(budget, session.largest_budget))
        session.synchronize()
        taken = (time.perf_counter() - start) / max(1, session.iteration - before)
        if session.stopped in (Stopped.OVERRUN, Stopped.OVERFLOW):
            session.mend(budget)
        elif session.stopped is not Stopped.NO:
            break
    return taken
