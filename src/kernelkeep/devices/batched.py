"""Prepared launches and replays of devices that collect launches and submit many at once: ready-made entries of a batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .prepared import LaunchOptions, Prepared
from .replay import Replay, Step

if TYPE_CHECKING:
    from .base import Device
    from .kernel import Kernel


class BatchedPrepared(Prepared):
    """A launch whose entry is made once, and added to the batch by every call."""

    def __init__(
        self, kernel: Kernel, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> None:
        super().__init__(kernel, args, values, shape, options)
        self._entry: Any = None

    @abstractmethod
    def make_entry(self, values: Sequence[Any]) -> Any:
        """What the batch of this device holds for a launch with these values."""

    @property
    def entry(self) -> Any:
        """What a call adds to the batch; made at the first call after a change."""
        entry = self._entry
        if entry is None:
            values = self.values
            if self.revoked:
                self.refuse()
            entry = self._entry = self.make_entry(values)
            if self.revoked:  # since a moment ago
                self._entry = None
                self.refuse()
        return entry

    def bind(self, index: int, value: Any) -> None:
        self.values[index] = value
        self._entry = None

    def arm(self) -> None:
        self._entry = None

    def disarm(self) -> None:
        self._entry = None
        super().disarm()


class BatchedReplay(Replay):
    """The loop, with the launches between two copies added to the batch together."""

    def __init__(self, device: Device, steps: Sequence[Step]) -> None:
        super().__init__(device, steps)
        self._runs: list[list[BatchedPrepared] | Callable[[], None]] = []
        for call in self.calls:
            if not isinstance(call, BatchedPrepared):
                self._runs.append(call)
            elif self._runs and isinstance(self._runs[-1], list):
                self._runs[-1].append(call)
            else:
                self._runs.append([call])

    @abstractmethod
    def add(self, entries: list[Any]) -> None:
        """Add entries to the batch that the device has now."""

    def add_all(self) -> None:
        """Add every launch to the device's batch, and make the copies between them. The caller has the device's lock."""
        for run in self._runs:
            if isinstance(run, list):
                for prepared in run:
                    if prepared.kernel.program.unloaded:
                        prepared.kernel.raise_closed()
                self.add([prepared.entry for prepared in run])
            else:
                run()
