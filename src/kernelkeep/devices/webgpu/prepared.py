"""Prepared launches and replays on WebGPU: ready-made entries for the batch of waiting launches (`device.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..prepared import LaunchOptions, Prepared
from ..replay import Replay, Step

if TYPE_CHECKING:
    from .device import WebGPUDevice
    from .program import WebGPUKernel


class WebGPUPrepared(Prepared):
    """A launch whose buffers and packed scalars are ready for the batch."""

    kernel: WebGPUKernel

    def __init__(
        self, kernel: WebGPUKernel, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> None:
        super().__init__(kernel, args, values, shape, options)
        self._entry: Any = None

    def __call__(self) -> None:
        self.kernel.add_to_batch(self.entry)

    @property
    def entry(self) -> Any:
        """What a call adds to the batch; made at the first call after a change."""
        entry = self._entry
        if entry is None:
            values = self.values
            if self.revoked:
                self.refuse()
            entry = self._entry = (self.kernel, *self.kernel.sort_values(values), self.shape)
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


class WebGPUReplay(Replay):
    """The loop, with the launches between two copies in one command buffer.

    A command buffer of WebGPU can be submitted once, so each replay encodes anew.
    """

    device: WebGPUDevice

    def __init__(self, device: WebGPUDevice, steps: Sequence[Step]) -> None:
        super().__init__(device, steps)
        self._runs: list[list[WebGPUPrepared] | Callable[[], None]] = []
        for call in self.calls:
            if not isinstance(call, WebGPUPrepared):
                self._runs.append(call)
            elif self._runs and isinstance(self._runs[-1], list):
                self._runs[-1].append(call)
            else:
                self._runs.append([call])

    def launch(self) -> None:
        device = self.device
        with device.context.lock:
            for run in self._runs:
                if isinstance(run, list):
                    for prepared in run:
                        if prepared.kernel.program.unloaded:
                            prepared.kernel.raise_closed()
                    device.waiting.extend([prepared.entry for prepared in run])
                else:
                    run()
            device.submit_waiting()
