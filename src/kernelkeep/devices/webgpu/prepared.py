"""Prepared launches and replays on WebGPU: ready-made entries for the batch of waiting launches (`device.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..batched import BatchedPrepared, BatchedReplay

if TYPE_CHECKING:
    from .device import WebGPUDevice
    from .program import WebGPUKernel


class WebGPUPrepared(BatchedPrepared):
    """A launch whose buffers and packed scalars are ready for the batch."""

    kernel: WebGPUKernel

    def __call__(self) -> None:
        self.kernel.add_to_batch(self.entry)

    def make_entry(self, values: Sequence[Any]) -> Any:
        return (self.kernel, *self.kernel.sort_values(values), self.shape)


class WebGPUReplay(BatchedReplay):
    """The loop, with the launches between two copies in one command buffer.

    A command buffer of WebGPU can be submitted once, so each replay encodes anew.
    """

    device: WebGPUDevice

    def add(self, entries: list[Any]) -> None:
        self.device.waiting.extend(entries)

    def launch(self) -> None:
        with self.device.context.lock:
            self.add_all()
            self.device.submit_waiting()
