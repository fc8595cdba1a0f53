"""Streams, and events as fences and timers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError
from ..synchronization import Fence, Queue, Timer

if TYPE_CHECKING:
    from .device import CudaDevice


_STREAMS_BESIDE = 12  # that a device may have before a grid makes way for more: half of what the driver makes
_STREAMS_AT_ONCE = 8  # are made then


def stream_of(queue: Queue | None, device: CudaDevice) -> Any:
    """The stream behind a queue; the device's own for None."""
    if queue is None:
        return device.cu_stream
    if not isinstance(queue, CudaQueue) or queue.device is not device:
        raise ArgumentError(f"queue must come from {device.spec}.queue()")
    return queue.cu_stream


class CudaQueue(Queue):
    """A stream."""

    device: CudaDevice

    def __init__(self, device: CudaDevice) -> None:
        super().__init__(device)
        flags = device.driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._given_back = False
        with device.current:
            self.cu_stream = device.streams.take() or self._create(flags)
        device.streams.queues.add(self)

    def _create(self, flags: Any) -> Any:
        device = self.device
        create = device.driver.cuStreamCreate
        if not device.discarded.held or device.streams.count < _STREAMS_BESIDE:
            return device.call(create, flags)
        # Beside a kernel that never exits the driver makes some two dozen streams, and waits for the kernel with the next one.
        with device.residents.out_of_the_way():
            for _ in range(_STREAMS_AT_ONCE - 1):
                device.streams.give(device.call(create, flags))
            return device.call(create, flags)

    def fence(self) -> CudaFence:
        self.device.check_open()
        return CudaFence(self.device, self.cu_stream)

    def wait_for(self, fence: Fence) -> None:
        if not isinstance(fence, CudaFence):
            raise ArgumentError("fence must come from CUDA")
        self.device.check_open()
        self.device.call(self.device.driver.cuStreamWaitEvent, self.cu_stream, fence.event, 0)

    def synchronize(self) -> None:
        self.device.check_open()
        self.device.call(self.device.driver.cuStreamSynchronize, self.cu_stream)

    def give_back(self) -> None:
        """Let another queue have the stream. Nothing is launched here any more."""
        if not self._given_back:
            self._given_back = True
            self.device.streams.queues.discard(self)
            self.device.streams.give(self.cu_stream)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.give_back()


class CudaFence(Fence):
    """An event."""

    def __init__(self, device: CudaDevice, stream: Any, *, timing: bool = False) -> None:
        self._device = device
        self._events = device.timing_events if timing else device.events
        self.event = self._events.take()
        device.call(device.record, self.event, stream)

    @property
    def done(self) -> bool:
        self._device.check_not_lost()
        if self._device.closed:
            return True  # closing waited for all work, and the event may be gone
        (status,) = self._device.driver.cuEventQuery(self.event)
        if status == self._device.driver.CUresult.CUDA_ERROR_NOT_READY:
            return False
        if status != self._device.success:
            raise self._device.translated(status, "work before the fence")
        return True

    def wait(self, timeout_seconds: float | None = None) -> bool:
        if timeout_seconds is None and not self._device.closed:
            self._device.call(self._device.driver.cuEventSynchronize, self.event)
            return True
        return super().wait(timeout_seconds)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # half made, or the interpreter is half gone
            self._events.give(self.event)


class CudaTimer(Timer):
    """Two events."""

    device: CudaDevice
    _start: CudaFence
    _end: CudaFence

    def start(self) -> None:
        self._start = CudaFence(self.device, self.device.cu_stream, timing=True)

    def stop(self) -> None:
        self._end = CudaFence(self.device, self.device.cu_stream, timing=True)

    def read(self) -> float:
        self.device.check_open()
        self._end.wait()
        driver = self.device.driver
        return float(self.device.call(driver.cuEventElapsedTime, self._start.event, self._end.event)) * 1e-3
