"""Prepared launches on OpenGL: entries of a batch that are made once, and added one by one or many together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..batched import BatchedPrepared, BatchedReplay
from ..prepared import LaunchOptions

if TYPE_CHECKING:
    from .device import OpenGLDevice
    from .program import OpenGLKernel


class OpenGLPrepared(BatchedPrepared):
    """An entry of a batch: the kernel, its values sorted as OpenGL takes them, the grid."""

    kernel: OpenGLKernel

    def __init__(
        self, kernel: OpenGLKernel, args: tuple[Any, ...], values: tuple[Any, ...], shape: Any, options: LaunchOptions
    ) -> None:
        super().__init__(kernel, args, values, shape, options)
        self._device = kernel.device
        self._lock = kernel.device.context.lock

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

    def make_entry(self, values: Sequence[Any]) -> Any:
        return (self.kernel, self.kernel.sort_values(values), self.shape)


class OpenGLReplay(BatchedReplay):
    """The loop, with the launches between two copies added to the batch at once."""

    device: OpenGLDevice

    def add(self, entries: list[Any]) -> None:
        self.device.waiting.extend(entries)

    def launch(self) -> None:
        with self.device.context.lock:
            self.add_all()
            self.device.submit()
