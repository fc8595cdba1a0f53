"""Device memory on OpenCL: a buffer that lives until its last holder drops it.

One thread may close an array while another has already read its buffer for a launch. So closing drops the buffer instead of
releasing it: the launch still holds it, and then the driver does until the kernel has run.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from .library import load_pyopencl


@cache
def buffer_class() -> Any:
    """The class of device memory; created on first use, because it derives from a class of pyopencl."""
    cl: Any = load_pyopencl()

    class OpenCLMemory(cl.Buffer):  # type: ignore[misc]
        """A buffer with a token, to recognise the buffer later without keeping it alive."""

        __slots__ = ("token",)

        def __init__(self, context: Any, flags: int, nbytes: int) -> None:
            super().__init__(context, flags, nbytes)
            self.token = object()

    return OpenCLMemory


def part_of_buffer(buffer: Any, offset: int, nbytes: int) -> Any:
    """A sub-buffer with a token. The driver keeps the whole buffer while it lives."""
    part = buffer.get_sub_region(offset, nbytes)
    part.token = object()
    return part
