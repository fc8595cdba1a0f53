"""Makes a kernel smaller while it still shows the same mistake, by making the decisions that led to it simpler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

Decisions = tuple[int, ...]


def shrunk(decisions: Decisions, is_bad: Callable[[Decisions], bool], seconds: float) -> Decisions:
    """Fewer and smaller decisions with which `is_bad` is still true, as far as the time allows."""
    end = time.monotonic() + seconds
    tried = {decisions}

    def works(simpler: Decisions) -> bool:
        if simpler in tried or time.monotonic() > end:
            return False
        tried.add(simpler)
        return is_bad(simpler)

    before: Decisions = ()
    while before != decisions and time.monotonic() < end:
        before = decisions
        size = max(len(decisions) // 2, 1)
        while size:
            at = 0
            while at < len(decisions):
                for simpler in _without(decisions, at, size):
                    if works(simpler):
                        decisions = simpler
                        break
                else:
                    at += size
            size //= 2
        for at, one in enumerate(decisions):
            for less in range(one):
                simpler = (*decisions[:at], less, *decisions[at + 1 :])
                if less in (0, one // 2, one - 1) and works(simpler):
                    decisions = simpler
                    break
    return decisions


def _without(decisions: Decisions, at: int, size: int) -> Iterator[Decisions]:
    """Some decisions left out, or replaced by the simplest ones."""
    yield decisions[:at] + decisions[at + size :]
    if any(decisions[at : at + size]):
        yield decisions[:at] + (0,) * len(decisions[at : at + size]) + decisions[at + size :]
