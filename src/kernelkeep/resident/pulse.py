"""The heartbeat of a supervised worker, given as long as a resident grid acknowledges tasks."""

from __future__ import annotations

import threading

from ..continuous.heartbeat import beat, is_supervised
from .lanes import Lanes

_PAUSE_SECONDS = 0.25


class Pulse:
    """Beats in the background while tasks are done; only in a worker of `kk.run_supervised`, elsewhere it does nothing."""

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._ended = threading.Event()
        if is_supervised():
            threading.Thread(target=self._watch, name="kernelkeep-resident-pulse", daemon=True).start()

    def _watch(self) -> None:
        seen = self._lanes.done()
        while not self._ended.wait(_PAUSE_SECONDS):
            now = self._lanes.done()
            if now != seen:
                beat()
                seen = now

    def end(self) -> None:
        """No more beats."""
        self._ended.set()
