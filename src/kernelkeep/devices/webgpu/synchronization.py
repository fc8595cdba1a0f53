"""Fences and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..synchronization import Fence, Timer

if TYPE_CHECKING:
    from .device import WebGPUDevice


class WebGPUFence(Fence):
    """A point in the queue."""

    def __init__(self, device: WebGPUDevice) -> None:
        self._device = device
        self._finished = False
        with device.context.lock:
            device.submit_waiting()
            self.point = device.context.note_point()
            device.batch_size = 1

    @property
    def done(self) -> bool:
        if not self._finished:
            self._device.check_open()
            self._finished = self._device.context.is_passed(self.point)
        return self._finished

    def wait(self, timeout_seconds: float | None = None) -> bool:
        if not self._finished:
            self._device.check_open()
            self._finished = self._device.context.wait(self.point, timeout_seconds)
        return self._finished


class WebGPUTimer(Timer):
    """Two timestamps of the device."""

    device: WebGPUDevice

    def start(self) -> None:
        self._start = self.device.timestamps.submit()

    def stop(self) -> None:
        self._stop = self.device.timestamps.submit(bring=True)

    def read(self) -> float:
        start, stop = self.device.timestamps.seconds([self._start, self._stop])
        return stop - start
