"""How long the stages of small batches take, measured on one in sixteen: asking for times costs as much as such a batch."""

from __future__ import annotations

_MEASURE_EVERY = 16  # batches


class StageTimes:
    """Upload, kernel and download of batches that are alike."""

    def __init__(self) -> None:
        self.stages = (0.0, 0.0, 0.0)  # seconds of each, of the batch that was measured last
        self.seconds = 0.0
        self.unmeasured = 0  # batches since then
        self._sent = 0

    def is_due(self) -> bool:
        """Whether the next batch is to be measured."""
        sent = self._sent
        self._sent = sent + 1
        return sent % _MEASURE_EVERY == 0 or not self.seconds

    def note(self, upload: float, kernel: float, download: float) -> None:
        """A batch was measured."""
        self.stages = (max(0.0, upload), max(0.0, kernel), max(0.0, download))
        self.seconds = sum(self.stages)
        self.unmeasured = 0
