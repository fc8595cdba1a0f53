"""Queues on OpenCL, and markers as fences and timers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ...errors import ArgumentError, DeviceError
from ..synchronization import Fence, Queue, Timer

if TYPE_CHECKING:
    from .device import OpenCLDevice


def queue_of(queue: Queue | None, device: OpenCLDevice) -> Any:
    """The driver's queue behind ours; the device's own for None."""
    if queue is None:
        return device.cl_queue
    if not isinstance(queue, OpenCLQueue) or queue.device is not device:
        raise ArgumentError(f"queue must come from {device.spec}.queue()")
    return queue.cl_queue


class OpenCLQueue(Queue):
    """An in-order queue beside the device's own."""

    device: OpenCLDevice

    def __init__(self, device: OpenCLDevice, *, timed: bool = False) -> None:
        super().__init__(device)
        properties = device.cl.command_queue_properties.PROFILING_ENABLE if timed else 0
        self.cl_queue = device.call(lambda: device.cl.CommandQueue(device.cl_context, properties=properties))

    def fence(self) -> OpenCLFence:
        return OpenCLFence(self.device, self.cl_queue)

    def wait_for(self, fence: Fence) -> None:
        if not isinstance(fence, OpenCLFence):
            raise ArgumentError("fence must come from OpenCL")
        self.device.call(lambda: self.device.cl.enqueue_barrier(self.cl_queue, wait_for=[fence.event]))

    def synchronize(self) -> None:
        self.device.call(self.cl_queue.finish)


class OpenCLFence(Fence):
    """A marker's event."""

    def __init__(self, device: OpenCLDevice, queue: Any) -> None:
        self._device = device
        self.event = device.call(lambda: device.cl.enqueue_marker(queue))
        device.call(queue.flush)

    @property
    def done(self) -> bool:
        self._device.check_not_lost()
        status = self.event.command_execution_status
        if status < 0:
            raise DeviceError(f"{self._device.spec}: work before the fence failed (OpenCL error {status})")
        return bool(status == self._device.cl.command_execution_status.COMPLETE)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        if timeout_seconds is None:
            self._device.call(self.event.wait)
            return True
        return super().wait(timeout_seconds)


class OpenCLTimer(Timer):
    """Markers on a profiling queue: the device's own, or one that this thread's work goes to inside the block.

    All work is done when the queue changes, and it changes for no other thread: one that launches and then reads, while the
    queue changed in between, would read before its launch has run.
    """

    device: OpenCLDevice

    def __init__(self, device: OpenCLDevice, *, held_back: bool = False) -> None:
        super().__init__(device)
        self._start: Any = None
        self._end: Any = None
        # The block's work starts when the block ends, so that the device never waits for the host in between.
        self._gate = device.cl.UserEvent(device.cl_context) if held_back else None

    def start(self) -> None:
        device, cl = self.device, self.device.cl
        device.check_not_lost()
        if device.profiling_queue is None:
            device.profiling_queue = cl.CommandQueue(
                device.cl_context, properties=cl.command_queue_properties.PROFILING_ENABLE
            )
        device.timing_lock.acquire()  # there is one profiling queue
        self._before = device.timing_thread  # this one, where blocks are nested
        try:
            device.call(device.cl_queue.finish)
            device.timing_thread = threading.get_ident()
            if self._gate is not None:
                device.call(lambda: cl.enqueue_marker(device.profiling_queue, wait_for=[self._gate]))
            self._start = device.call(lambda: cl.enqueue_marker(device.profiling_queue))
        except BaseException:
            self._restore_queue()
            raise

    def _restore_queue(self) -> None:
        device = self.device
        try:
            if self._gate is not None:
                self._gate.set_status(device.cl.command_execution_status.COMPLETE)
            device.call(device.profiling_queue.finish)
        finally:
            device.timing_thread = self._before
            device.timing_lock.release()

    def stop(self) -> None:
        device = self.device
        try:
            self._end = device.call(lambda: device.cl.enqueue_marker(device.profiling_queue))
        finally:
            self._restore_queue()

    def read(self) -> float:
        self.device.check_not_lost()
        return float(self._end.profile.end - self._start.profile.end) * 1e-9
