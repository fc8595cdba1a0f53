"""Page-locked host memory."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..host_data import parse_dtype, parse_shape
from .context import Current

if TYPE_CHECKING:
    from .device import CudaDevice


def pinned_array(device: CudaDevice, shape: int | tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """A NumPy array in page-locked memory."""
    parsed_shape, parsed_dtype = parse_shape(shape), parse_dtype(dtype)
    nbytes = math.prod(parsed_shape) * parsed_dtype.itemsize
    memory = np.asarray(PinnedMemory(device, max(16, nbytes)))
    return memory[:nbytes].view(parsed_dtype).reshape(parsed_shape)


class PinnedMemory:
    """Page-locked host memory, freed with the last NumPy array on it.

    The array may be in use after the device was closed, so it retains the context, which owns the memory.
    """

    def __init__(self, device: CudaDevice, nbytes: int) -> None:
        flags = device.driver.CU_MEMHOSTALLOC_PORTABLE | device.driver.CU_MEMHOSTALLOC_DEVICEMAP
        self._device = device
        with device.current:
            device.discarded.clear()
            call = device.driver.cuMemHostAlloc
            self._pointer = int(device.call_freeing(call, nbytes, flags, doing="pinning host memory"))
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
            discarded = device.discarded
            call = (_unpin, device.driver, device.current, device.cu_device, self._pointer)
            if device.closed and discarded.begin():  # no later call would do it
                try:
                    call[0](*call[1:])
                finally:
                    discarded.end()
            else:
                discarded.add(*call)


def _unpin(driver: Any, current: Current, cu_device: Any, pointer: int) -> None:
    with current:
        driver.cuMemFreeHost(pointer)
    driver.cuDevicePrimaryCtxRelease(cu_device)
