"""Device memory on OpenCL: a buffer that lives as long as anybody holds it.

A launch in one thread may have taken an array's buffer while another thread closes the array. So closing lets the buffer go
instead of releasing it: the launch still holds it, and the driver keeps it from the launch until the kernel has run.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from .library import load_pyopencl

__all__ = ["buffer_class"]


@cache
def buffer_class() -> Any:
    """The class of device memory; made when pyopencl is first needed."""
    cl: Any = load_pyopencl()

    class OpenCLMemory(cl.Buffer):  # type: ignore[misc]
        """A buffer with a token: whoever only wants to know whether it is the same buffer as before keeps that instead."""

        __slots__ = ("token",)

        def __init__(self, context: Any, flags: int, nbytes: int) -> None:
            super().__init__(context, flags, nbytes)
            self.token = object()

    return OpenCLMemory
