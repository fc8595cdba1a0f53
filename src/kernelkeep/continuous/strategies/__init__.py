"""Strategies: when slices are dispatched and how long they are. They never change what a slice computes."""

from __future__ import annotations

from ...errors import ArgumentError
from ..session import Session
from .base import Options, Strategy
from .buffered import Buffered
from .checkpointed import Checkpointed
from .choice import choose
from .mega import Mega
from .redispatch import Redispatch
from .supervised import Supervised

__all__ = ["STRATEGIES", "Options", "Strategy", "check_strategy", "make_strategy"]

STRATEGIES: dict[str, type[Strategy]] = {
    "redispatch": Redispatch,
    "mega": Mega,
    "checkpointed": Checkpointed,
    "supervised": Supervised,
    "buffered": Buffered,
}


def check_strategy(name: str) -> None:
    """Raise `ArgumentError` unless there is a strategy of that name."""
    if name != "auto" and name not in STRATEGIES:
        raise ArgumentError(f"strategy is auto, {', '.join(STRATEGIES)}, not {name!r}")


def make_strategy(name: str, session: Session, options: Options, limit: int) -> tuple[Strategy, str]:
    """A strategy by name and why it is used; "auto" measures for a moment, which advances the work by up to `limit`."""
    if name == "auto":
        return choose(session, options, limit)
    return STRATEGIES[name](session, options), "asked for"
