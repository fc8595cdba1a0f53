"""How long the batches of a job take on the device: what decides who waits for them."""

from __future__ import annotations

import math


class Pace:
    """A running mean of seconds, from the dispatch of a batch to its arrival; infinite before the first one."""

    def __init__(self) -> None:
        self.seconds = math.inf

    def note(self, seconds: float) -> None:
        """A batch took so long."""
        before = self.seconds
        self.seconds = seconds if before == math.inf else 0.75 * before + 0.25 * seconds
