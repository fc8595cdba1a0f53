"""How long the batches of a job take on the device, and whether cores are shared: what decides how they are waited for."""

from __future__ import annotations

import math
import time

_SHARING_SECONDS = 0.05


class Pace:
    """A running mean of seconds, from the dispatch of a batch to its arrival; infinite before the first one."""

    def __init__(self) -> None:
        self.seconds = math.inf

    def note(self, seconds: float) -> None:
        """A batch took so long."""
        before = self.seconds
        self.seconds = seconds if before == math.inf else 0.75 * before + 0.25 * seconds


class Sharing:
    """Whether threads that never sleep have to share their cores with others, as was noticed lately in this process."""

    def __init__(self) -> None:
        self._until = 0.0

    @property
    def is_likely(self) -> bool:
        """Whether one stood still a moment ago."""
        return time.perf_counter() < self._until

    def note(self) -> None:
        """A thread stood still while it looked for a batch."""
        self._until = time.perf_counter() + _SHARING_SECONDS


sharing = Sharing()
