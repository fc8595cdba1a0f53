"""What is known of a state that is still on its way to the host, so that its first bytes are written while the last ones come."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from ...errors import CheckpointError
from .block_digest import Digests


class Arriving:
    """How far the arrays of a state are, for the thread that writes them.

    `digests` are those of their blocks, as far as the device has computed them: of an array that does not end with a word, the
    last one is missing. None where the host computes them all.
    """

    def __init__(self, digests: Mapping[str, Digests] | None = None) -> None:
        self.digests = digests
        self._ends: dict[str, int] = {}
        self._is_there = False
        self._error: BaseException | None = None
        self._condition = threading.Condition()

    def reach(self, name: str, end: int) -> None:
        """The first `end` bytes of an array are there."""
        with self._condition:
            self._ends[name] = end
            self._condition.notify_all()

    def finish(self) -> None:
        """All of it is there."""
        with self._condition:
            self._is_there = True
            self._condition.notify_all()

    def fail(self, error: BaseException) -> None:
        """The rest never comes."""
        with self._condition:
            self._error = error
            self._condition.notify_all()

    def wait(self, name: str, end: int) -> None:
        """Wait for the first `end` bytes of an array. `CheckpointError` where they never come."""
        with self._condition:
            while not self._is_there and self._ends.get(name, 0) < end:
                if self._error is not None:
                    raise CheckpointError(f"the state did not come from the device: {self._error}") from self._error
                self._condition.wait()
