"""Upload, compute and download on OpenCL: three queues, or one where host and device share their memory.

A CPU works on the host's memory, so neither upload nor download copies a byte. With fine-grained shared virtual memory they
are no calls at all. Without it a block is a buffer over host memory which is *mapped* while the host uses it: unmapping is
the upload, mapping it again the download.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import OutOfMemory
from ..lanes import Block, DeviceClock, Lane, Lanes, Mark
from ..synchronization import Fence
from .prepared import OpenCLPrepared
from .synchronization import OpenCLFence, OpenCLQueue

if TYPE_CHECKING:
    from .device import OpenCLDevice

_ALIGNMENT = 4096  # CPU drivers use memory in place only if it is aligned


class OpenCLMark(OpenCLFence, Mark):
    """The event of a marker or a launch; it has a time if the queue records times."""

    def __init__(self, device: OpenCLDevice, offset: float, event: Any) -> None:
        self._device = device
        self.waits_asleep = not device.info.is_gpu  # to look again and again would take the cores from the kernel
        self.offset = offset
        self.event = event


class OpenCLLane(Lane):
    """A queue."""

    device: OpenCLDevice

    def __init__(self, lanes: OpenCLLanes, device: OpenCLDevice) -> None:
        super().__init__(device)
        self._lanes = lanes
        self._cl = device.cl
        self.queue = OpenCLQueue(device, timed=lanes.timed)
        self.cl_queue = self.queue.cl_queue

    def upload(self, handle: Any, block: Block) -> Any:
        if handle is block.handle:
            return block.give_to_device(self.cl_queue) if isinstance(block, SharedBlock) else None
        return self.upload_from(handle, block.host)

    def upload_from(self, handle: Any, host: np.ndarray[Any, Any]) -> Any:
        return self._cl.enqueue_copy(self.cl_queue, handle, host, is_blocking=False)

    def download(self, handle: Any, block: Block) -> Any:
        if handle is block.handle:
            return block.give_to_host(self.cl_queue) if isinstance(block, SharedBlock) else None
        return self._cl.enqueue_copy(self.cl_queue, block.host, handle, is_blocking=False)

    def copy(self, target: Any, origin: Any, nbytes: int) -> Any:
        return self._cl.enqueue_copy(self.cl_queue, target, origin, byte_count=nbytes)

    def clear(self, handle: Any, nbytes: int) -> Any:
        return self._cl.enqueue_fill_buffer(self.cl_queue, handle, np.uint8(0), 0, nbytes)

    def wait_for(self, mark: Fence) -> None:
        assert isinstance(mark, OpenCLFence)
        self._cl.enqueue_barrier(self.cl_queue, wait_for=[mark.event])

    def mark(self) -> OpenCLMark:
        return OpenCLMark(self.device, self._lanes.clock.offset, self._cl.enqueue_marker(self.cl_queue))

    def launch_and_mark(self, launch: Callable[[], None]) -> Mark:
        if not isinstance(launch, OpenCLPrepared):
            return super().launch_and_mark(launch)
        return OpenCLMark(self.device, self._lanes.clock.offset, launch.launch_on(self.cl_queue))

    def flush(self) -> None:
        self.cl_queue.flush()


class FineBlock(Block):
    """Fine-grained shared virtual memory: host and device both see it, and take turns by waiting for each other."""

    def __init__(self, device: OpenCLDevice, nbytes: int) -> None:
        cl, flags = device.cl, device.cl.svm_mem_flags
        try:
            host = cl.svm_empty(
                device.cl_context, flags.READ_WRITE | flags.SVM_FINE_GRAIN_BUFFER, (nbytes,), np.uint8, alignment=64
            )
        except (cl.Error, MemoryError):
            raise OutOfMemory(f"{device.spec} cannot allocate {nbytes:,} bytes") from None
        super().__init__(host, cl.SVM(host))


class SharedBlock(Block):
    """A buffer over host memory, mapped while the host uses it."""

    def __init__(self, device: OpenCLDevice, nbytes: int, queue: Any) -> None:
        self._cl = device.cl
        try:
            room = np.empty(nbytes + _ALIGNMENT, "u1")
        except MemoryError:
            raise OutOfMemory(f"{device.spec} cannot allocate {nbytes:,} bytes") from None
        start = -room.ctypes.data % _ALIGNMENT
        flags = device.cl.mem_flags.READ_WRITE | device.cl.mem_flags.USE_HOST_PTR
        host = room[start : start + nbytes]
        super().__init__(host, device.call(lambda: device.cl.Buffer(device.cl_context, flags, hostbuf=host)))
        self._both = device.cl.map_flags.READ | device.cl.map_flags.WRITE
        self._mapped: Any = None
        self.give_to_host(queue)
        queue.finish()

    def give_to_device(self, queue: Any) -> Any:
        mapped, self._mapped = self._mapped, None
        return mapped.base.release(queue)

    def give_to_host(self, queue: Any) -> Any:
        self._mapped, event = self._cl.enqueue_map_buffer(
            queue, self.handle, self._both, 0, (self.nbytes,), np.uint8, is_blocking=False
        )
        return event


class OpenCLLanes(Lanes):
    """Three queues or one, and the offset between the device's clock and the host's."""

    device: OpenCLDevice

    def __init__(self, device: OpenCLDevice, timed: bool) -> None:
        self.shares_memory = bool(device.cl_device.type & device.cl.device_type.CPU)
        self._fine_grained = _has_fine_grained_memory(device)
        self.ends_with_launch = self.shares_memory and self._fine_grained
        super().__init__(device, timed)
        self._clock_queue = OpenCLQueue(device, timed=True)
        self.clock = DeviceClock(self._device_time)

    def open_lanes(self) -> None:
        self.upload = OpenCLLane(self, self.device)
        if self.shares_memory:
            self.compute = self.download = self.upload
        else:
            self.compute, self.download = OpenCLLane(self, self.device), OpenCLLane(self, self.device)

    def block(self, nbytes: int) -> Block:
        if nbytes > self.device.max_allocation_bytes:
            raise OutOfMemory(f"{self.device.spec} cannot allocate {nbytes:,} bytes")
        if self.shares_memory and self._fine_grained:
            return FineBlock(self.device, nbytes)
        if self.shares_memory:
            return SharedBlock(self.device, nbytes, self._clock_queue.cl_queue)
        return super().block(nbytes)

    def times(self, marks: Sequence[OpenCLMark]) -> list[float]:
        times = [mark.event.profile.end * 1e-9 + mark.offset for mark in marks]
        self.clock.keep_exact()
        return times

    def _device_time(self) -> float:
        event = self.device.cl.enqueue_marker(self._clock_queue.cl_queue)
        event.wait()
        return float(event.profile.end) * 1e-9


def _has_fine_grained_memory(device: OpenCLDevice) -> bool:
    try:
        return bool(device.cl_device.svm_capabilities & device.cl.device_svm_capabilities.FINE_GRAIN_BUFFER)
    except (AttributeError, device.cl.Error):  # a driver from before OpenCL 2.0
        return False
