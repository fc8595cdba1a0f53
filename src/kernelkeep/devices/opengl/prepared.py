"""Prepared launches on OpenGL: entries of a batch that are made once, and added one by one or many together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..prepared import LaunchOptions, Prepared
from ..replay import Replay, Step

if TYPE_CHECKING:
    from .device import OpenGLDevice
    from .program import OpenGLKernel


class OpenGLPrepared(Prepared):
    """An entry of a batch: the kernel, its values sorted as OpenGL takes them, the grid."""

    kernel: OpenGLKernel

    def __init__(
        self, kernel: OpenGLKernel, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> None:
        super().__init__(kernel, args, values, shape, options)
        self._device = kernel.device
        self._lock = kernel.device.context.lock
        self._entry: Any = None

    def __call__(self) -> None:
        entry = self.entry
        device = self._device
        with self._lock:
            if self.kernel.program.unloaded:
                self.kernel.raise_closed()
            waiting = device.waiting
            waiting.append(entry)
            if len(waiting) >= device.batch_size:
                device.submit()

    @property
    def entry(self) -> Any:
        """What a call adds to the batch; made at the first call after a change."""
        entry = self._entry
        if entry is None:
            values = self.values
            if self.revoked:
                self.refuse()
            entry = self._entry = (self.kernel, self.kernel.sort_values(values), self.shape)
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


class OpenGLReplay(Replay):
    """The loop, with the launches between two copies added to the batch at once."""

    device: OpenGLDevice

    def __init__(self, device: OpenGLDevice, steps: Sequence[Step]) -> None:
        super().__init__(device, steps)
        self._runs: list[list[OpenGLPrepared] | Callable[[], None]] = []
        for call in self.calls:
            if not isinstance(call, OpenGLPrepared):
                self._runs.append(call)
            elif self._runs and isinstance(self._runs[-1], list):
                self._runs[-1].append(call)
            else:
                self._runs.append([call])

    def launch(self) -> None:
        device = self.device
        with device.context.current():
            for run in self._runs:
                if isinstance(run, list):
                    for prepared in run:
                        if prepared.kernel.program.unloaded:
                            prepared.kernel.raise_closed()
                    device.waiting.extend([prepared.entry for prepared in run])
                else:
                    run()
            device.submit()
