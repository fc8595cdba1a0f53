"""Device memory on CUDA: an address that is freed once nobody holds it.

A launch in one thread may have taken an array's address while another thread closes the array. Freed then, it could be another
array's by the time the launch is made. So closing lets the address go, and whoever holds it last frees it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .device import CudaDevice

__all__ = ["CudaMemory"]


class CudaMemory(int):
    """An address, as the driver takes it; it holds the device."""

    _device: CudaDevice
    at_once = False  # the array was closed, not collected: its memory is not to wait for the next call

    @classmethod
    def of(cls, device: CudaDevice, address: int) -> CudaMemory:
        memory = cls(address)
        memory._device = device
        return memory

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            self._device.give_back(int(self), self.at_once)
