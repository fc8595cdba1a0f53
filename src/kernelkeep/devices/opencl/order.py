"""Order and time on OpenCL: queues, and markers as fences and timers."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ...errors import ArgumentError, DeviceError
from ..base import Fence, Queue, Timer

if TYPE_CHECKING:
    from .device import OpenCLDevice

__all__ = ["OpenCLFence", "OpenCLQueue", "OpenCLTimer", "queue_of"]


def queue_of(queue: Queue, device: OpenCLDevice) -> Any:
    if not isinstance(queue, OpenCLQueue) or queue.device is not device:
        raise ArgumentError(f"the queue does not belong to {device.spec}")
    return queue.cl_queue


class OpenCLQueue(Queue):
    """An in-order queue beside the device's own."""

    def __init__(self, device: OpenCLDevice, *, timed: bool = False) -> None:
        self.device = device
        keeps_time = device.cl.command_queue_properties.PROFILING_ENABLE if timed else 0
        self.cl_queue = device._guarded(lambda: device.cl.CommandQueue(device.cl_context, properties=keeps_time))

    def fence(self) -> OpenCLFence:
        return OpenCLFence(self.device, self.cl_queue)

    def wait_for(self, fence: Fence) -> None:
        if not isinstance(fence, OpenCLFence):
            raise ArgumentError("the fence does not belong to OpenCL")
        self.device._guarded(lambda: self.device.cl.enqueue_barrier(self.cl_queue, wait_for=[fence.event]))

    def synchronize(self) -> None:
        self.device._guarded(self.cl_queue.finish)


class OpenCLFence(Fence):
    """A marker's event."""

    def __init__(self, device: OpenCLDevice, queue: Any) -> None:
        self._device = device
        self.event = device._guarded(lambda: device.cl.enqueue_marker(queue))
        device._guarded(queue.flush)

    @property
    def done(self) -> bool:
        self._device._check_not_lost()
        status = self.event.command_execution_status
        if status < 0:
            raise DeviceError(f"{self._device.spec}: work before the fence failed (OpenCL error {status})")
        return bool(status == self._device.cl.command_execution_status.COMPLETE)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        if timeout_seconds is None:
            self._device._guarded(self.event.wait)
            return True
        deadline = time.monotonic() + timeout_seconds
        while not self.done:
            if time.monotonic() >= deadline:
                return False
            time.sleep(20e-6)
        return True


class OpenCLTimer(Timer):
    """Markers on a profiling queue, which stands in for the device's own queue inside the block.

    Profiling costs NVIDIA's driver a third more per launch, so the queue used otherwise does without. Launches of
    other threads during the block are measured with it.
    """

    def __init__(self, device: OpenCLDevice, *, held_back: bool = False) -> None:
        self._device = device
        self._start: Any = None
        self._end: Any = None
        # Nothing of the block begins before its end, so that the device does not wait for the host inside it.
        self._gate = device.cl.UserEvent(device.cl_context) if held_back else None

    def __enter__(self) -> Self:
        device, cl = self._device, self._device.cl
        device._check_not_lost()
        if device._profiling_queue is None:
            device._profiling_queue = cl.CommandQueue(
                device.cl_context, properties=cl.command_queue_properties.PROFILING_ENABLE
            )
        device._timing.acquire()  # the queue that stands in is one for all
        self._plain = device.cl_queue
        try:
            device._guarded(self._plain.finish)
            device.cl_queue = device._profiling_queue
            if self._gate is not None:
                device._guarded(lambda: cl.enqueue_marker(device._profiling_queue, wait_for=[self._gate]))
            self._start = device._guarded(lambda: cl.enqueue_marker(device._profiling_queue))
        except BaseException:
            self._give_back()
            raise
        return self

    def _give_back(self) -> None:
        device = self._device
        try:
            if self._gate is not None:
                self._gate.set_status(device.cl.command_execution_status.COMPLETE)
            # Before the other queue is back: what another thread launched meanwhile comes before what it does next.
            device._guarded(device._profiling_queue.finish)
        finally:
            device.cl_queue = self._plain
            device._timing.release()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        device = self._device
        try:
            self._end = device._guarded(lambda: device.cl.enqueue_marker(device._profiling_queue))
        finally:
            self._give_back()

    @property
    def seconds(self) -> float:
        if self._end is None:
            raise DeviceError("the timer's block has not ended")
        self._device._check_not_lost()
        return float(self._end.profile.end - self._start.profile.end) * 1e-9
