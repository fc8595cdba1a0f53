"""Strategies: when slices are dispatched and how long they are. They never change what a slice computes."""

from __future__ import annotations

from ..run_options import RunOptions
from ..session import Session
from .base import Strategy
from .buffered import Buffered
from .checkpointed import Checkpointed
from .choice import choose
from .mega import Mega
from .redispatch import Redispatch
from .supervised import Supervised

__all__ = ["STRATEGIES", "Strategy", "make_strategy"]

STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind for kind in (Redispatch, Mega, Checkpointed, Supervised, Buffered)
}


def make_strategy(session: Session, options: RunOptions, limit: int) -> tuple[Strategy, str]:
    """The strategy of a run and why it is used; "auto" measures for a moment, which advances the work by up to `limit`."""
    if options.strategy == "auto":
        return choose(session, options, limit)
    return STRATEGIES[options.strategy](session, options), "asked for"
