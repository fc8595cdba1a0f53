"""Upload, compute and download on three streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..lanes import Block, BoundBatch, Lane, Lanes, Mark, Transfer
from ..synchronization import Fence
from .synchronization import CudaFence, CudaQueue

if TYPE_CHECKING:
    from .device import CudaDevice

_ANCHOR_SECONDS = 4.0  # times of events are float32 milliseconds: exact to half a microsecond after four seconds


class CudaMark(CudaFence, Mark):
    """An event, and the anchor of its time."""

    def __init__(self, lanes: CudaLanes, stream: Any) -> None:
        device = self._device = lanes.device
        self._events = device.timing_events if lanes.timed else device.events
        self.anchor = lanes.anchor
        self.event = self._events.take()
        if device.record(self.event, stream)[0] is not device.success:  # without `call` first: a mark is made often
            device.call(device.record, self.event, stream)

    @property
    def done(self) -> bool:
        device = self._device
        if device.driver.cuEventQuery(self.event)[0] is device.success:  # asked again and again
            return True
        return super().done


class CudaLane(Lane):
    """A stream."""

    device: CudaDevice
    queue: CudaQueue

    def __init__(self, lanes: CudaLanes) -> None:
        super().__init__(lanes.device)
        self._lanes = lanes
        self.queue = CudaQueue(lanes.device)
        self._stream = self.queue.cu_stream

    def upload(self, handle: int, block: Block) -> Any:
        device, to_device = self.device, self._lanes.to_device  # as with marks: without `call` first
        if to_device(handle, block.address, block.nbytes, self._stream)[0] is not device.success:
            device.call(to_device, handle, block.address, block.nbytes, self._stream)

    def upload_from(self, handle: int, host: np.ndarray[Any, Any]) -> Any:
        self.device.call(self._lanes.to_device, handle, host.ctypes.data, host.nbytes, self._stream)
        return host

    def download(self, handle: int, block: Block) -> Any:
        device, to_host = self.device, self._lanes.to_host
        if to_host(block.address, handle, block.nbytes, self._stream)[0] is not device.success:
            device.call(to_host, block.address, handle, block.nbytes, self._stream)

    def copy(self, target: int, origin: int, nbytes: int) -> Any:
        self.device.call(self.device.driver.cuMemcpyDtoDAsync, target, origin, nbytes, self._stream)

    def clear(self, handle: int, nbytes: int) -> Any:
        self.device.call(self.device.driver.cuMemsetD8Async, handle, 0, nbytes, self._stream)

    def wait_for(self, mark: Fence) -> None:
        assert isinstance(mark, CudaFence)
        self.device.call(self.device.stream_wait, self._stream, mark.event, 0)

    def mark(self) -> CudaMark:
        return CudaMark(self._lanes, self._stream)


class CudaLanes(Lanes):
    """Three streams, and an anchor that translates times of events to the host's clock."""

    device: CudaDevice
    marks_are_dear = True
    small_batches_ahead = 2

    def __init__(self, device: CudaDevice, timed: bool) -> None:
        driver = device.driver
        # Looked up once: these are called several times for each batch.
        self.to_device, self.to_host = driver.cuMemcpyHtoDAsync, driver.cuMemcpyDtoHAsync
        self.elapsed = driver.cuEventElapsedTime
        super().__init__(device, timed)
        self.clock = CudaQueue(device)
        self.anchor = self._new_anchor()
        device.registered.open()

    def copies_directly(self, host: np.ndarray[Any, Any], *, page_lock: bool) -> bool:
        return self.device.registered.has(host, page_lock=page_lock)

    def open_lanes(self) -> None:
        self.upload, self.compute, self.download = CudaLane(self), CudaLane(self), CudaLane(self)

    def close(self) -> None:
        self.device.registered.close()
        self.clock.give_back()
        for lane in (self.upload, self.compute, self.download):
            assert isinstance(lane, CudaLane)
            lane.queue.give_back()

    def bind_batch(
        self,
        uploads: Sequence[Transfer],
        launch: Callable[[], None],
        downloads: Sequence[Transfer],
        *,
        single: bool,
        measured: bool = True,
    ) -> BoundBatch:
        from .bound_batch import NativeBatch, fits, native_calls

        if native_calls() is None or not fits(uploads) or not fits(downloads):
            return super().bind_batch(uploads, launch, downloads, single=single, measured=measured)
        return NativeBatch(self, uploads, launch, downloads, single, measured)

    def times(self, marks: Sequence[CudaMark]) -> list[float]:
        elapsed, success, times = self.elapsed, self.device.success, []
        for mark in marks:
            event, seconds = mark.anchor
            status, milliseconds = elapsed(event, mark.event)
            if status is not success:
                milliseconds = self.device.call(elapsed, event, mark.event)
            times.append(seconds + milliseconds * 1e-3)
        if time.perf_counter() - self.anchor[1] > _ANCHOR_SECONDS:
            self.anchor = self._new_anchor()
        return times

    def _new_anchor(self) -> tuple[Any, float]:
        """An event and its time by the host's clock: the shortest of a few tries is the most exact."""
        device, driver = self.device, self.device.driver
        event = device.timing_events.take()
        best = (float("inf"), 0.0)
        for _ in range(5):
            last = device.timing_events.take()
            before = time.perf_counter()
            device.call(driver.cuEventRecord, last, self.clock.cu_stream)
            device.call(driver.cuEventSynchronize, last)
            after = time.perf_counter()
            if after - before < best[0]:
                best = (after - before, (before + after) / 2)
                event, last = last, event
            device.timing_events.give(last)
        return event, best[1]
