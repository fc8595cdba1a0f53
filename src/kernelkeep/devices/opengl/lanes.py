"""Upload, compute and download on OpenGL: one queue, mapped buffers and sync objects.

A block is a buffer that stays mapped while the device uses it. A GPU copies from and to it, so the host fills and empties
blocks while the device computes. Software OpenGL works in the host's memory, so there the kernel works on the block itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import OutOfMemory
from ..lanes import Block, DeviceClock, Lane, Lanes, Mark
from .libgl import Constants as C
from .synchronization import OpenGLFence

if TYPE_CHECKING:
    from .device import OpenGLDevice

_READ, _WRITE, _PERSISTENT, _COHERENT, _DYNAMIC, _CLIENT = 0x1, 0x2, 0x40, 0x80, 0x100, 0x200
_MAPPED = _READ | _WRITE | _PERSISTENT | _COHERENT


class OpenGLMark(OpenGLFence, Mark):
    """A sync object and a timestamp, made without a flush: the executor flushes once for a batch."""

    def __init__(self, device: OpenGLDevice, offset: float, timed: bool) -> None:
        self._device = device
        self._finished = False
        self.seen = 0.0  # when it was first seen to have passed, by the host's clock
        self.offset = offset
        self.query = ctypes.c_uint()
        with device.context.current() as gl:
            device.submit_waiting(gl)
            if timed:
                gl.glGenQueries(1, ctypes.byref(self.query))
                gl.glQueryCounter(self.query, C.TIMESTAMP)
            self._sync = gl.glFenceSync(C.SYNC_GPU_COMMANDS_COMPLETE, 0)

    def poll(self, nanoseconds: int) -> bool:
        passed = super().poll(nanoseconds)
        if passed and not self.seen:
            self.seen = time.perf_counter()
        return passed

    def wait(self, timeout_seconds: float | None = None) -> bool:
        # Polls with pauses: a wait inside OpenGL would hold the context, and other threads could not submit.
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        pause = 20e-6
        while not self.done:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 1.5, 200e-6)
        return True

    def __del__(self) -> None:
        super().__del__()
        query = getattr(self, "query", None)
        if query:  # not 0
            self._device.delete_later(lambda gl: gl.glDeleteQueries(1, ctypes.byref(query)))


class SoftwareMark(Mark):
    """A point that has passed: software OpenGL computes inside the calls, so nothing is gained by looking again later."""

    waits_asleep = True

    def __init__(self, device: OpenGLDevice) -> None:
        device.synchronize()
        self.seen = time.perf_counter()

    @property
    def done(self) -> bool:
        return True

    def wait(self, timeout_seconds: float | None = None) -> bool:
        return True


class MappedBlock(Block):
    """A buffer that is mapped for as long as it lives."""

    lendable = False  # its memory is freed with the context

    def __init__(self, device: OpenGLDevice, nbytes: int) -> None:
        self._device = device
        self.buffer, address = _map_buffer(device, nbytes)
        host = np.ctypeslib.as_array((ctypes.c_ubyte * nbytes).from_address(address))
        super().__init__(host, self.buffer if device.context.is_software else None)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            self._device.release_memory(self.buffer)


def _map_buffer(device: OpenGLDevice, nbytes: int) -> tuple[int, int]:
    name = ctypes.c_uint()
    with device.context.current() as gl:
        device.submit_waiting(gl)
        gl.glGenBuffers(1, ctypes.byref(name))
        gl.glBindBuffer(C.COPY_WRITE_BUFFER, name.value)
        gl.glBufferStorage(C.COPY_WRITE_BUFFER, -(-nbytes // 4) * 4, None, _MAPPED | _DYNAMIC | _CLIENT)
        address = 0 if gl.glGetError() else gl.glMapBufferRange(C.COPY_WRITE_BUFFER, 0, nbytes, _MAPPED)
        if not address:
            device.release_memory(name.value)
            raise OutOfMemory(f"{device.spec} cannot map {nbytes:,} bytes")
    return int(name.value), int(address)


class OpenGLLane(Lane):
    """The device's one queue."""

    device: OpenGLDevice

    def __init__(self, lanes: OpenGLLanes) -> None:
        super().__init__(lanes.device)
        self._lanes = lanes

    def upload(self, handle: int, block: Block) -> Any:
        assert isinstance(block, MappedBlock)
        if handle != block.handle:
            self.device.copy(handle, block.buffer, block.nbytes)

    def download(self, handle: int, block: Block) -> Any:
        assert isinstance(block, MappedBlock)
        if handle == block.handle:
            return  # the kernel wrote to it, and a barrier follows every launch
        self.device.copy(block.buffer, handle, block.nbytes)
        with self.device.context.current() as gl:
            self.device.submit_waiting(gl)
            gl.glMemoryBarrier(C.ALL_BARRIER_BITS)  # one of them makes mapped memory visible to the host

    def clear(self, handle: int, nbytes: int) -> Any:
        with self.device.context.current() as gl:
            self.device.submit_waiting(gl)
            gl.glBindBuffer(C.COPY_WRITE_BUFFER, handle)
            gl.glClearBufferData(C.COPY_WRITE_BUFFER, C.R8, C.RED, C.UNSIGNED_BYTE, None)
            self.device.check_errors(gl, "clearing memory")

    def mark(self) -> Mark:
        if self._lanes.shares_memory:
            return SoftwareMark(self.device)
        return OpenGLMark(self.device, self._lanes.clock.offset, self._lanes.timed)

    def flush(self) -> None:
        if not self._lanes.shares_memory:  # a mark was made, so all is done
            self.device.submit()


class OpenGLLanes(Lanes):
    """One lane under three names, and the offset between the device's clock and the host's."""

    device: OpenGLDevice

    def __init__(self, device: OpenGLDevice, timed: bool) -> None:
        self.shares_memory = self.computes_at_once = device.context.is_software
        # Software OpenGL computes inside the calls, so the host's clock is as good as timestamps.
        super().__init__(device, timed and not self.shares_memory)
        with device.context.current():  # or taking the context would be measured too
            self.clock = DeviceClock(self._device_time)

    def open_lanes(self) -> None:
        self.upload = self.compute = self.download = OpenGLLane(self)

    def block(self, nbytes: int) -> Block:
        return MappedBlock(self.device, nbytes)

    def times(self, marks: Sequence[OpenGLMark]) -> list[float]:
        if self.shares_memory:
            return [mark.seen for mark in marks]
        times = []
        value = ctypes.c_uint64()
        with self.device.context.current() as gl:
            for mark in marks:
                gl.glGetQueryObjectui64v(mark.query, C.QUERY_RESULT, ctypes.byref(value))
                times.append(value.value * 1e-9 + mark.offset)
            self.clock.keep_exact()
        return times

    def _device_time(self) -> float:
        with self.device.context.current() as gl:
            return float(gl.integer(C.TIMESTAMP)) * 1e-9
