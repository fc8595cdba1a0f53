"""Order and time on OpenGL: sync objects as fences, timestamps as timers."""

from __future__ import annotations

import ctypes
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ...errors import DeviceError
from ..base import Fence, Timer
from .libgl import Constants as C

if TYPE_CHECKING:
    from .device import OpenGLDevice

__all__ = ["OpenGLFence", "OpenGLTimer"]


class OpenGLFence(Fence):
    """A sync object."""

    def __init__(self, device: OpenGLDevice) -> None:
        self._device = device
        self._finished = False
        with device.context.current() as gl:
            device._submit(gl)
            self._sync = gl.glFenceSync(C.SYNC_GPU_COMMANDS_COMPLETE, 0)
            gl.glFlush()
            device._batch = 1

    @property
    def done(self) -> bool:
        return self._look(0)

    def wait(self, timeout_seconds: float | None = None) -> bool:
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        # Short looks, because other threads need the context meanwhile.
        while not self._look(1_000_000):
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return True

    def _look(self, nanoseconds: int) -> bool:
        if self._finished:
            return True
        self._device._check_open()
        with self._device.context.current() as gl:
            status = gl.glClientWaitSync(self._sync, C.SYNC_FLUSH_COMMANDS_BIT, nanoseconds)
        if status == C.WAIT_FAILED:
            raise DeviceError(f"{self._device.spec}: waiting for a fence failed")
        self._finished = status != C.TIMEOUT_EXPIRED
        return self._finished

    def __del__(self) -> None:
        sync = getattr(self, "_sync", None)
        if sync:
            self._device._dead_objects.append(lambda gl: gl.glDeleteSync(sync))


class OpenGLTimer(Timer):
    """Two timestamps of the device."""

    def __init__(self, device: OpenGLDevice) -> None:
        self._device = device
        self._queries = (ctypes.c_uint * 2)()
        self._seconds: float | None = None
        self._ended = False

    def __enter__(self) -> Self:
        with self._device.context.current() as gl:
            self._device._submit(gl)
            gl.glGenQueries(2, self._queries)
            gl.glQueryCounter(self._queries[0], C.TIMESTAMP)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._device.context.current() as gl:
            self._device._submit(gl)
            gl.glQueryCounter(self._queries[1], C.TIMESTAMP)
            gl.glFlush()
        self._ended = True

    @property
    def seconds(self) -> float:
        if not self._ended:
            raise DeviceError("the timer's block has not ended")
        if self._seconds is None:
            self._device._check_open()
            start, end = ctypes.c_uint64(), ctypes.c_uint64()
            with self._device.context.current() as gl:
                gl.glGetQueryObjectui64v(self._queries[0], C.QUERY_RESULT, ctypes.byref(start))
                gl.glGetQueryObjectui64v(self._queries[1], C.QUERY_RESULT, ctypes.byref(end))
                gl.glDeleteQueries(2, self._queries)
            self._seconds = (end.value - start.value) * 1e-9
        return self._seconds
