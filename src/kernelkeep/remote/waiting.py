"""Waiting for a lease, or for what its holder works on.

Those who wait ask the store again and again, with pauses that grow with the time waited: after a tenth of a second they ask
a hundred times a second, after ten seconds once, each at moments of its own. `benchmarks/fleet_simulation.py` shows what ten
thousand of them cost the store.
"""

from __future__ import annotations

import enum
import random
import time
from collections.abc import Callable

from .lease import State

_TOLERATED_SECONDS = 1.0  # a store that fails for so long while somebody waits is given up
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 1.0
_PAUSE_SHARE = 0.1  # of the time waited so far: nobody waits for more than a tenth longer than needed
_ATTEMPT_SECONDS = 0.1  # between two looks at the lease itself, at least


class Outcome(enum.Enum):
    """How waiting ended."""

    HELD = "the lease is held here"
    ARRIVED = "what another holder worked on is there"
    FAILED = "another holder tried and failed"
    LATE = "the time is up"


def wait_for(attempt: Callable[[], State | None], arrived: Callable[[], bool], timeout_seconds: float) -> Outcome:
    """Wait until an `attempt` takes the lease, or until `arrived` says that what its holder works on is there.

    One failure of the store is waited out; a store that keeps failing raises its error.
    """
    begun = time.monotonic()
    failing_since: float | None = None
    attempted: float | None = None
    while True:
        waited = time.monotonic() - begun
        try:
            if attempt_is_due(waited, attempted):
                state = attempt()
                if state is None:
                    return Outcome.HELD
                if state is State.FAILED:
                    return Outcome.FAILED
                attempted = waited
            if arrived():
                return Outcome.ARRIVED
            failing_since = None
        except Exception:
            now = time.monotonic()
            if attempted is None or (failing_since is not None and now - failing_since >= _TOLERATED_SECONDS):
                raise
            failing_since = failing_since or now
        left = timeout_seconds - (time.monotonic() - begun)
        if left <= 0:
            return Outcome.LATE
        time.sleep(min(pause_seconds(waited, random.random()), left))


def attempt_is_due(waited_seconds: float, attempted: float | None) -> bool:
    """Whether to look at the lease itself again; the bytes are looked for more often."""
    pause = max(_ATTEMPT_SECONDS, 2 * pause_seconds(waited_seconds, 0.5))
    return attempted is None or waited_seconds - attempted >= pause


def pause_seconds(waited_seconds: float, chance: float) -> float:
    """How long to wait before the next look. `chance`, from 0 to 1, keeps those who wait from looking all at once."""
    pause = min(max(_PAUSE_SHARE * waited_seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
    return pause * (0.5 + chance)
