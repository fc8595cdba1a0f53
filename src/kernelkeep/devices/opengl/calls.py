"""OpenGL calls that are recorded in Python and made in C (`_caller.c`).

Recording has two merits: a list of calls costs less than the same calls through ctypes, and another thread can make them, which
keeps the context (`keeper.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from ... import settings
from .libgl import Constants as C

Call = tuple[int | bytes | None, ...]

# What launches, waits and copies consist of. None of them takes a float or returns anything but an error.
_RECORDED = (
    "glUseProgram", "glBindBuffer", "glBindBufferBase", "glBindBufferRange", "glBufferData", "glBufferSubData",
    "glGetBufferSubData", "glCopyBufferSubData", "glFlush", "glFinish",
)  # fmt: skip


class Recorder:
    """The GL functions of a launch, which add to `calls` instead of being called."""

    glUseProgram: Callable[..., None]
    glFlush: Callable[[], None]
    glFinish: Callable[[], None]

    def __init__(self, gl: Any, zero: int) -> None:
        self.calls: list[Call] = []
        for name in _RECORDED:
            setattr(self, name, self._recording(address_of(getattr(gl, name))))
        self._dispatch = address_of(gl.glDispatchCompute)
        self._barrier: Call = (address_of(gl.glMemoryBarrier), C.ALL_BARRIER_BITS)
        self._get_error: Call = (address_of(gl.glGetError) | zero,)

    def _recording(self, address: int) -> Callable[..., None]:
        add = self.calls.append

        def record(*arguments: int | bytes | None) -> None:
            add((address, *arguments))

        return record

    def dispatch(self, x: int, y: int, z: int) -> None:
        """Launch groups whose results all later commands see."""
        self.calls += ((self._dispatch, x, y, z), self._barrier)

    def glGetError(self) -> int:
        """Records the look for errors; one that is found is raised later."""
        self.calls.append(self._get_error)
        return 0


def address_of(function: Any) -> int:
    """The address of a C function that ctypes knows."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def new_recorder(gl: Any) -> Recorder | None:
    """Where launches are recorded; None where the module in C was not built or is not to be used."""
    module = caller_module()
    return None if module is None else Recorder(gl, module.ZERO)


def make_here(calls: list[Call]) -> int:
    """Make calls in this thread; what failed, or 0."""
    failure: int = caller_module().make_here(calls)[1]
    return failure


def taking_calls(egl: Any, display: int, context: int) -> tuple[list[Call], Call]:
    """The calls that make a context current, and the one that puts it down."""
    module = caller_module()
    make_current = address_of(egl.eglMakeCurrent)
    must = 0 if module is None else module.NOT_ZERO
    taking: list[Call] = [
        (address_of(egl.eglBindAPI), C.EGL_OPENGL_API),  # the default of each thread is OpenGL ES
        (make_current | must, display, 0, 0, context),
    ]
    return taking, (make_current, display, 0, 0, 0)


@cache
def caller_module() -> Any:
    """The module in C; None where it was not built or is not to be used."""
    if not settings.native():
        return None
    try:
        from ... import _caller
    except ImportError:
        return None
    return _caller
