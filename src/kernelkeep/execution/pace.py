"""How long the batches of a job take on the device, and how the last ones were waited for: what decides how the next are."""

from __future__ import annotations

import math
import time

_SHARING_SECONDS = 0.05


class Pace:
    """A running mean of seconds, from the dispatch of a batch to its arrival; infinite before the first one."""

    def __init__(self) -> None:
        self.seconds = math.inf
        self._shared_until = 0.0

    def note(self, seconds: float) -> None:
        """A batch took so long."""
        before = self.seconds
        self.seconds = seconds if before == math.inf else 0.75 * before + 0.25 * seconds

    @property
    def shares_core(self) -> bool:
        """Whether a thread that never sleeps has to share its core with others, as it was a moment ago."""
        return time.perf_counter() < self._shared_until

    def note_sharing(self) -> None:
        """A thread stood still while it looked for a batch."""
        self._shared_until = time.perf_counter() + _SHARING_SECONDS
