"""Device memory on OpenGL: the name of a buffer that is deleted once nobody holds it.

A launch in one thread may have taken an array's buffer while another thread closes the array, and launches wait in a batch.
OpenGL gives the names of deleted buffers to new ones, so a name that is still to be launched with must not be deleted.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .device import OpenGLDevice

__all__ = ["OpenGLMemory"]


class OpenGLMemory(int):
    """A buffer's name, as OpenGL takes it; it holds the device."""

    _device: OpenGLDevice

    @classmethod
    def of(cls, device: OpenGLDevice, name: int) -> OpenGLMemory:
        memory = cls(name)
        memory._device = device
        return memory

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # the interpreter may be half gone
            self._device._dead_buffers.append(int(self))  # the collector may run inside any GL call
