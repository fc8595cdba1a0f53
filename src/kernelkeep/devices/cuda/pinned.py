"""Page-locked host memory."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from .context import Current

if TYPE_CHECKING:
    from .device import CudaDevice


class PinnedMemory:
    """Page-locked host memory, freed with the last NumPy array on it.

    The array may be in use after the device was closed, so it retains the context, which owns the memory.
    """

    def __init__(self, device: CudaDevice, nbytes: int) -> None:
        flags = device.driver.CU_MEMHOSTALLOC_PORTABLE | device.driver.CU_MEMHOSTALLOC_DEVICEMAP
        self._device = device
        with device.current:
            device.discarded.clear()
            self._pointer = int(device.call(device.driver.cuMemHostAlloc, nbytes, flags, doing="pinning host memory"))
        device.call(device.driver.cuDevicePrimaryCtxRetain, device.cu_device)
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (self._pointer, False),
            "version": 3,
        }

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            device = self._device
            if device.lost or not hasattr(self, "_pointer"):
                return
            if device.closed:  # no later call would do it
                _unpin(device.driver, device.current, device.cu_device, self._pointer)
            else:
                device.discarded.add(_unpin, device.driver, device.current, device.cu_device, self._pointer)


def _unpin(driver: Any, current: Current, cu_device: Any, pointer: int) -> None:
    with current:
        driver.cuMemFreeHost(pointer)
    driver.cuDevicePrimaryCtxRelease(cu_device)
