"""One EGL context, lent to one thread at a time.

An OpenGL context belongs to one thread, and only that thread can let go of it. Three ways to serve several threads were
weighed:

- *A context per thread, objects shared*: what one thread launched is only seen by another after a fence and a flush,
  on every launch (measured: 5 µs on a launch of 5.5), and loose uniforms of shared programs race.
- *One owner thread that others send work to*: two thread switches and the interpreter lock on every wait.
- *One context, made current for a step and released again*: no sharing rules at all; a switch costs 4 to 7 µs.

This is the third, and the switch is paid once for many launches: see `OpenGLDevice`, which submits them in batches.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import DeviceError
from .driver_cache import note_display
from .libgl import Constants as C
from .libgl import library

__all__ = ["Context", "count_devices"]


def _devices() -> list[Any]:
    egl = library()
    if not hasattr_egl(egl, "eglQueryDevicesEXT"):
        raise DeviceError("this EGL cannot list devices (EGL_EXT_device_enumeration is missing)")
    count = ctypes.c_int()
    found = (ctypes.c_void_p * 64)()
    if not egl.eglQueryDevicesEXT(64, found, ctypes.byref(count)) or not count.value:
        raise DeviceError("EGL finds no device; on Debian: apt-get install libegl-mesa0 libgl1-mesa-dri")
    return [found[i] for i in range(count.value)]


def hasattr_egl(egl: Any, name: str) -> bool:
    """Whether an optional EGL function is there."""
    return name in vars(egl)


def count_devices() -> int:
    """How many EGL devices there are; some may not be able to do OpenGL compute."""
    return len(_devices())


class Context:
    """An OpenGL 4.3 core context without any surface."""

    def __init__(self, index: int, *, probing: bool = False) -> None:
        devices = _devices()
        if index >= len(devices):
            raise DeviceError(f"there is no device opengl:{index}; EGL has {len(devices)} here")
        egl = self._egl = library()
        self.is_software = b"software" in (egl.eglQueryDeviceStringEXT(devices[index], C.EGL_EXTENSIONS) or b"")
        self._display = egl.eglGetPlatformDisplayEXT(C.EGL_PLATFORM_DEVICE_EXT, devices[index], None)
        if not self._display:
            raise DeviceError(f"EGL device {index} gives no display")
        # A look round must not end a display that others use.
        self._ours_to_end = probing and not egl.eglQueryString(self._display, C.EGL_VERSION)
        initialised = egl.eglInitialize(self._display, None, None)
        vendor = (egl.eglQueryString(self._display, C.EGL_VENDOR) or b"") if initialised else b""
        note_display(vendor.decode("utf-8", "replace"), probing)
        if not initialised:
            raise DeviceError(f"EGL device {index} cannot be initialised (EGL error 0x{egl.eglGetError():x})")
        self._context = self._create(index)
        self.lock = threading.RLock()
        self._depth = 0

    def _create(self, index: int) -> Any:
        egl = self._egl
        egl.eglBindAPI(C.EGL_OPENGL_API)
        wanted = (ctypes.c_int * 5)(
            C.EGL_SURFACE_TYPE, C.EGL_PBUFFER_BIT, C.EGL_RENDERABLE_TYPE, C.EGL_OPENGL_BIT, C.NONE
        )
        config, count = ctypes.c_void_p(), ctypes.c_int()
        egl.eglChooseConfig(self._display, wanted, ctypes.byref(config), 1, ctypes.byref(count))
        attributes = (ctypes.c_int * 7)(
            C.EGL_CONTEXT_MAJOR_VERSION, 4, C.EGL_CONTEXT_MINOR_VERSION, 3,
            C.EGL_CONTEXT_OPENGL_PROFILE_MASK, C.EGL_CORE_PROFILE_BIT, C.NONE,
        )  # fmt: skip
        context = egl.eglCreateContext(self._display, config if count.value else None, None, attributes)
        if not context:
            error = egl.eglGetError()
            raise DeviceError(f"EGL device {index} has no OpenGL 4.3 (EGL error 0x{error:x})")
        return context

    @contextmanager
    def current(self) -> Iterator[Any]:
        """Have the context in this thread for the length of the block; gives the GL functions."""
        with self.lock:
            if self._depth == 0:
                self._enter()
            self._depth += 1
            try:
                yield self._egl
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._egl.eglMakeCurrent(self._display, None, None, None)

    def _enter(self) -> None:
        egl = self._egl
        if not self._context:
            raise DeviceError("the OpenGL context is closed")
        egl.eglBindAPI(C.EGL_OPENGL_API)  # each thread starts out with OpenGL ES
        if not egl.eglMakeCurrent(self._display, None, None, self._context):
            raise DeviceError(f"the OpenGL context cannot be made current (EGL error 0x{egl.eglGetError():x})")

    def close(self) -> None:
        """Destroy the context and all its objects."""
        with self.lock:
            if self._context:
                self._egl.eglDestroyContext(self._display, self._context)
                self._context = None
                if self._ours_to_end:
                    self._egl.eglTerminate(self._display)
