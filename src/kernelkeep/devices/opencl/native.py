"""Launches in C (`_enqueue.c`), with drivers for CPUs: a prepared launch is one call, and so are all launches of a graph."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ... import settings
from .prepared import OpenCLPrepared

if TYPE_CHECKING:
    from ..._enqueue import Target
    from .device import OpenCLDevice

_LAUNCH = struct.Struct("=8Q")  # the kernel, the dimensions, three numbers of work-items, three sizes of a group


def new_target(device: OpenCLDevice, queue: Any) -> Target | None:
    """Where launches in C go; None where they are made by pyopencl: on GPUs, or where the module in C is not there."""
    if device.info.is_gpu or not settings.native():
        return None
    try:
        from ..._enqueue import Target

        return Target(_enqueue_address(device.cl._cl.__file__), queue.int_ptr)
    except (ImportError, OSError, AttributeError):
        return None


@cache
def _enqueue_address(module: str) -> int:
    """Where the driver's function is; pyopencl's own module leads to the loader that it is linked with."""
    return ctypes.cast(ctypes.CDLL(module).clEnqueueNDRangeKernel, ctypes.c_void_p).value or 0


def packed_launch(kernel: Any, items: Sequence[int], group: Sequence[int]) -> bytes:
    """A launch as the module in C takes it. It does not keep the kernel alive."""
    rest = (1,) * (3 - len(items))
    return _LAUNCH.pack(kernel.int_ptr, len(items), *items, *rest, *group, *rest)


@cache
def _native_class() -> type[OpenCLPrepared]:
    from ..._enqueue import BoundLaunches

    class NativePrepared(BoundLaunches, OpenCLPrepared):
        """A call in C. `BoundLaunches` comes first among the bases, so that a call runs no Python code."""

        def arm(self) -> None:
            super().arm()
            device, queue = self.kernel.device, self.cl_queue
            target = device.launch_target if queue is None else new_target(device, queue)
            if target is not None:
                launch = packed_launch(self.cl_kernel, self.items, self.group)
                self.bind_launches(target, launch, (self.cl_kernel, self.values, queue))

        def disarm(self) -> None:
            self.bind_launches()
            super().disarm()

        def call_failed(self, place: int, status: int) -> None:
            # By pyopencl, which has the better error, and frees memory and tries again if there is too little.
            OpenCLPrepared.__call__(self)

    return NativePrepared


def new_prepared(device: OpenCLDevice, *arguments: Any) -> OpenCLPrepared:
    """A prepared launch: in C where the device has a target."""
    return (OpenCLPrepared if device.launch_target is None else _native_class())(*arguments)
