"""Sync objects as fences, timestamps as timers."""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING

from ...errors import DeviceError
from ..synchronization import Fence, Timer
from .libgl import Constants as C

if TYPE_CHECKING:
    from .device import OpenGLDevice


class OpenGLFence(Fence):
    """A sync object."""

    def __init__(self, device: OpenGLDevice) -> None:
        self._device = device
        self._finished = False
        with device.context.current() as gl:
            device.submit_waiting(gl)
            self._sync = gl.glFenceSync(C.SYNC_GPU_COMMANDS_COMPLETE, 0)
            gl.glFlush()
            device.start_batches()

    @property
    def done(self) -> bool:
        return self.poll(0)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        # Short waits, because other threads need the context in between.
        while not self.poll(1_000_000):
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def poll(self, nanoseconds: int) -> bool:
        """Whether it has passed, after waiting for at most so long."""
        if self._finished:
            return True
        self._device.check_open()
        with self._device.context.current() as gl:
            status = gl.glClientWaitSync(self._sync, C.SYNC_FLUSH_COMMANDS_BIT, nanoseconds)
        if status == C.WAIT_FAILED:
            raise DeviceError(f"{self._device.spec}: waiting for a fence failed")
        self._finished = status != C.TIMEOUT_EXPIRED
        return self._finished

    def __del__(self) -> None:
        sync = getattr(self, "_sync", None)
        if sync:
            self._device.delete_later(lambda gl: gl.glDeleteSync(sync))


class OpenGLTimer(Timer):
    """Two timestamps of the device."""

    device: OpenGLDevice

    def __init__(self, device: OpenGLDevice) -> None:
        super().__init__(device)
        self._queries = (ctypes.c_uint * 2)()
        self._measured: float | None = None

    def start(self) -> None:
        with self.device.context.current() as gl:
            self.device.submit_waiting(gl)
            gl.glGenQueries(2, self._queries)
            gl.glQueryCounter(self._queries[0], C.TIMESTAMP)

    def stop(self) -> None:
        with self.device.context.current() as gl:
            self.device.submit_waiting(gl)
            gl.glQueryCounter(self._queries[1], C.TIMESTAMP)
            gl.glFlush()

    def read(self) -> float:
        if self._measured is None:
            self.device.check_open()
            start, end = ctypes.c_uint64(), ctypes.c_uint64()
            with self.device.context.current() as gl:
                gl.glGetQueryObjectui64v(self._queries[0], C.QUERY_RESULT, ctypes.byref(start))
                gl.glGetQueryObjectui64v(self._queries[1], C.QUERY_RESULT, ctypes.byref(end))
                gl.glDeleteQueries(2, self._queries)
            self._measured = (end.value - start.value) * 1e-9
        return self._measured
