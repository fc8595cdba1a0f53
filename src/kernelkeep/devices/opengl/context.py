"""One OpenGL context that threads take turns with.

A context is current in one thread, and only that thread can release it. Three designs for several threads were compared:

- *A context per thread, objects shared*: one thread sees another's work only after a fence and a flush at every step, loose
  uniforms of shared programs race, and Mesa 22.3 crashes when a buffer is deleted in the other context.
- *One owner thread that others send work to*: two thread switches, and in Python the interpreter lock, at every wait.
- *One context, made current for a step and released after it*: no sharing rules; a switch costs 4 to 7 µs, and more for
  what the driver must look up again.

This is the third, because it is the safest. `OpenGLDevice` submits launches in batches, so a loop of launches has few steps. A
single launch and the wait for it are two steps; where such come in a row, the second design takes over on GPUs, a thread in C
(`keeper.py`), until somebody needs the context for something else.

A foreign context (moderngl, a window) that was current before a step is current again after it.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator
from typing import Any, NoReturn, Self

from ...errors import DeviceError, OutOfMemory
from .. import forks
from ..driver_cache import note_started
from .calls import Recorder, make_here, new_recorder, taking_calls
from .keeper import ContextKeeper
from .libgl import ERROR_NAMES, library
from .libgl import Constants as C

_IN_A_ROW = 2  # launches, waits and copies, after which the thread that keeps the context is used


def _devices() -> list[Any]:
    egl = library()
    forks.before_driver("opengl")
    if not has_function(egl, "eglQueryDevicesEXT"):
        raise DeviceError("this EGL cannot list devices (EGL_EXT_device_enumeration is missing)")
    count = ctypes.c_int()
    found = (ctypes.c_void_p * 64)()
    if not egl.eglQueryDevicesEXT(64, found, ctypes.byref(count)) or not count.value:
        forks.no_driver("opengl")
        raise DeviceError("EGL finds no device; on Debian: apt-get install libegl-mesa0 libgl1-mesa-dri")
    return [found[i] for i in range(count.value)]


def has_function(egl: Any, name: str) -> bool:
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
            from ..spec_hint import count_and_use

            here = count_and_use("opengl", len(devices))
            raise DeviceError(f"there is no device opengl:{index}; EGL has {here}")
        egl = self._egl = library()
        self.is_software = b"software" in (egl.eglQueryDeviceStringEXT(devices[index], C.EGL_EXTENSIONS) or b"")
        self._display = egl.eglGetPlatformDisplayEXT(C.EGL_PLATFORM_DEVICE_EXT, devices[index], None)
        if not self._display:
            raise DeviceError(f"EGL device {index} has no display")
        # Probing must not terminate a display that others use.
        self._terminates_display = probing and not egl.eglQueryString(self._display, C.EGL_VERSION)
        initialised = egl.eglInitialize(self._display, None, None)
        vendor = (egl.eglQueryString(self._display, C.EGL_VENDOR) or b"") if initialised else b""
        note_started(vendor.decode("utf-8", "replace"), probing)
        if not initialised:
            raise DeviceError(f"EGL device {index} cannot be initialised (EGL error 0x{egl.eglGetError():x})")
        self._context = self._create(index)
        self.lock = threading.RLock()
        self._depth = 0
        self._exclusive = 0  # blocks of `exclusive` in the thread that has the lock
        self._stays = (
            False  # a step in such a block took the context, which stays current until the outermost block ends
        )
        self._foreign: tuple[Any, Any, Any, Any] | None = None
        self._lost = ""
        self.recorder = new_recorder(egl)
        self._taking, self._leaving = taking_calls(egl, self._display, self._context)
        self._in_a_row = 0  # launches, waits and copies since a thread took the context for something else
        self._keeper: ContextKeeper | None = None
        # A software renderer computes inside the calls: a thread of our own would only be woken for it.
        if not self.is_software:
            self.keep_in_thread()

    def _create(self, index: int) -> Any:
        egl = self._egl
        egl.eglBindAPI(C.EGL_OPENGL_API)
        wanted = (ctypes.c_int * 5)(
            C.EGL_SURFACE_TYPE, C.EGL_PBUFFER_BIT, C.EGL_RENDERABLE_TYPE, C.EGL_OPENGL_BIT, C.NONE
        )
        config, count = ctypes.c_void_p(), ctypes.c_int()
        egl.eglChooseConfig(self._display, wanted, ctypes.byref(config), 1, ctypes.byref(count))
        wanted_version = [
            C.EGL_CONTEXT_MAJOR_VERSION, 4, C.EGL_CONTEXT_MINOR_VERSION, 3,
            C.EGL_CONTEXT_OPENGL_PROFILE_MASK, C.EGL_CORE_PROFILE_BIT,
        ]  # fmt: skip
        # Not EGL_KHR_context_flush_control: without the flush at release, NVIDIA's driver loses the order of work.
        values = [*wanted_version, C.NONE]
        attributes = (ctypes.c_int * len(values))(*values)
        context = egl.eglCreateContext(self._display, config if count.value else None, None, attributes)
        if not context:
            error = egl.eglGetError()
            raise DeviceError(f"EGL device {index} has no OpenGL 4.3 (EGL error 0x{error:x})")
        return context

    def current(self) -> Self:
        """For a `with` block with the context current in this thread; yields the GL functions."""
        self._in_a_row = 0  # without the lock: it only decides what is faster
        return self

    def for_launch(self) -> Self:
        """The same, for a launch, a wait or a copy."""
        return self

    def __enter__(self) -> Any:
        if self._lost:
            raise DeviceError(self._lost)
        self.lock.acquire()
        if not self._depth:
            try:
                self._foreign = self._enter()
            except BaseException:
                self.lock.release()
                raise
            if self._exclusive:
                self._stays = True
                self._depth = 1
        self._depth += 1
        return self._egl

    def __exit__(self, *exc: object) -> None:
        if self._lost:  # forked inside the block
            return
        try:
            self._depth -= 1
            if not self._depth:
                self._leave(self._foreign)
        finally:
            self.lock.release()

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[Any]:
        """For a `with` block in which no other thread gets the context; it yields the GL functions.

        A step inside of the block that needs the context current in this thread has it stay there until the block ends.
        """
        if self._lost:
            raise DeviceError(self._lost)
        with self.lock:
            self._exclusive += 1
            try:
                if self._keeper is None:
                    with self:
                        pass
                yield self._egl
            finally:
                self._exclusive -= 1
                if not self._exclusive and self._stays:
                    self._stays = False
                    if not self._lost:  # not forked inside the block
                        self._depth -= 1
                        self._leave(self._foreign)

    def _enter(self) -> tuple[Any, Any, Any, Any] | None:
        """Make the context current; returns the foreign context to restore afterwards, if there is one."""
        egl = self._egl
        if not self._context:
            raise DeviceError("the OpenGL context is closed")
        before = egl.eglGetCurrentContext()
        if before == self._context:
            return None
        if self._keeper is not None:
            self._keeper.put_down()
        foreign = None
        if before:
            foreign = (egl.eglGetCurrentDisplay(), *(egl.eglGetCurrentSurface(i) for i in _SURFACES), before)
        egl.eglBindAPI(C.EGL_OPENGL_API)  # the default of each thread is OpenGL ES
        if not egl.eglMakeCurrent(self._display, None, None, self._context):
            raise DeviceError(f"the OpenGL context cannot be made current (EGL error 0x{egl.eglGetError():x})")
        return foreign

    def _leave(self, foreign: tuple[Any, Any, Any, Any] | None) -> None:
        if not self._context:  # closed inside this step
            return
        if foreign is not None:
            self._egl.eglMakeCurrent(*foreign)
        else:
            self._egl.eglMakeCurrent(self._display, None, None, None)

    @property
    def kept(self) -> bool:
        """Whether recorded calls are made by the thread that keeps the context."""
        return self._keeper is not None and not self._depth

    # --- recorded calls

    def keep_in_thread(self) -> None:
        """Have a thread keep the context for launches, waits and copies in a row, where the module in C was built."""
        if self.recorder is not None and self._keeper is None:
            self._keeper = ContextKeeper(self._egl, self._taking, self._leaving, self.lock)

    def records_next(self) -> bool:
        """Whether the next launch, wait or copy is to be recorded; `for_launch()` is for one that is not.

        The thread that keeps the context is for several of them in a row. Among other steps it would only be one more thread that
        takes the context and puts it down.
        """
        if self.recorder is None:
            return False
        if self._depth:
            return True
        if self._keeper is None:  # a guest's context would have to be restored
            return not self._egl.eglGetCurrentContext()
        self._in_a_row += 1
        return self._in_a_row > _IN_A_ROW or self._exclusive > 0

    def make(self, recorder: Recorder, wait: bool) -> None:
        """Have recorded calls made: by the thread that keeps the context, or here.

        The calling thread has `lock`. What failed in this or an earlier call that was not waited for is raised.
        """
        if self._lost:
            raise DeviceError(self._lost)
        if not self._context:
            raise DeviceError("the OpenGL context is closed")
        calls = recorder.calls
        try:
            if self._depth:
                failure = make_here(calls)
            elif self._keeper is not None:
                failure = self._keeper.make(calls, wait)
            else:
                failure = make_here([*self._taking, *calls, self._leaving])
        finally:
            calls.clear()
        if failure:
            self._raise_failure(failure)

    def _raise_failure(self, failure: int) -> NoReturn:
        number = failure & 0xFFFFFFFF
        if not number:
            raise DeviceError("the OpenGL context cannot be made current")
        kind = OutOfMemory if number == C.OUT_OF_MEMORY else DeviceError
        raise kind(f"OpenGL: a launch, a wait or a copy failed with {ERROR_NAMES.get(number, hex(number))}")

    def mark_lost(self, reason: str) -> None:
        """The context belongs to the parent of this forked process: entering it raises from now on."""
        self._lost = reason
        if self._keeper is not None:
            self._keeper.abandon()

    def close(self) -> None:
        """Destroy the context and all its objects."""
        with self.lock:
            context, self._context = self._context, None
            if context:
                if self._keeper is not None:
                    self._keeper.stop()
                if self._egl.eglGetCurrentContext() == context:
                    self._egl.eglMakeCurrent(self._display, None, None, None)
                self._egl.eglDestroyContext(self._display, context)
                if self._terminates_display:
                    self._egl.eglTerminate(self._display)


_SURFACES = (0x3059, 0x305A)  # drawing, reading
