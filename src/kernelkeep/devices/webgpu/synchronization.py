"""Fences and timestamps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..synchronization import Fence, Timer
from .bindings import new_buffer
from .native import native
from .staging import Transfer

if TYPE_CHECKING:
    from .device import WebGPUDevice

_TIMESTAMP = 2  # WGPUQueryType
_UNDEFINED = 0xFFFFFFFF  # WGPU_QUERY_SET_INDEX_UNDEFINED
_QUERY_RESOLVE, _COPY_FROM = 0x200, 0x04  # WGPUBufferUsage


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
    """Two timestamps of the device, each in a compute pass without launches."""

    device: WebGPUDevice

    def __init__(self, device: WebGPUDevice) -> None:
        super().__init__(device)
        self._measured: float | None = None
        self._transfer: Any = None

    def start(self) -> None:
        ffi, lib = native()
        device = self.device
        with device.context.lock:
            descriptor = ffi.new("WGPUQuerySetDescriptor *", {"type": _TIMESTAMP, "count": 2})
            self._queries = lib.wgpuDeviceCreateQuerySet(device.context.raw, descriptor)
            device.submit_waiting()
            device.encode(lambda encoder: self._write(encoder, 0))

    def _write(self, encoder: Any, index: int) -> None:
        ffi, lib = native()
        written = {"querySet": self._queries, "beginningOfPassWriteIndex": index, "endOfPassWriteIndex": _UNDEFINED}
        writes = ffi.new("WGPUPassTimestampWrites *", written)
        descriptor = ffi.new("WGPUComputePassDescriptor *", {"timestampWrites": writes})
        begun = lib.wgpuCommandEncoderBeginComputePass(encoder, descriptor)
        lib.wgpuComputePassEncoderEnd(begun)
        lib.wgpuComputePassEncoderRelease(begun)

    def stop(self) -> None:
        _, lib = native()
        device = self.device
        with device.context.lock:
            device.submit_waiting()
            resolved = new_buffer(device.context, 256, _QUERY_RESOLVE | _COPY_FROM)

            def copy(staging: Any, nbytes: int) -> None:
                def encode(encoder: Any) -> None:
                    self._write(encoder, 1)
                    lib.wgpuCommandEncoderResolveQuerySet(encoder, self._queries, 0, 2, resolved, 0)
                    lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, resolved, 0, staging, 0, nbytes)

                device.encode(encode)

            self._transfer = Transfer(device.context, device.copies.staging, copy, 16)
            lib.wgpuBufferRelease(resolved)
            lib.wgpuQuerySetRelease(self._queries)

    def read(self) -> float:
        if self._measured is None:
            self.device.check_open()
            ffi, lib = native()
            ticks = ffi.new("uint64_t[2]")
            self._transfer.finish(int(ffi.cast("uintptr_t", ticks)))
            period = float(lib.wgpuQueueGetTimestampPeriod(self.device.context.queue))
            self._measured = (int(ticks[1]) - int(ticks[0])) * period * 1e-9
        return self._measured
