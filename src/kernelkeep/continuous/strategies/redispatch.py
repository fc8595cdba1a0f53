"""*redispatch*: one iteration a dispatch, the next one prepared, and submitted the moment the last one signals."""

from __future__ import annotations

from .base import Strategy


class Redispatch(Strategy):
    """Nothing is enqueued behind the iteration that runs: the host decides after each."""

    name = "redispatch"

    def advance(self, limit: int, until: float) -> int:
        session = self.session
        self.stream(lambda size: session.slice("step"), 1, limit, until, ahead=0, prepare_next=session.encode_step)
        return 1
