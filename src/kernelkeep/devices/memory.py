"""Device memory behind a number: an address, or the name of a buffer.

One thread may close an array while another has already read the array's handle for a launch. If the memory were freed at
once, the driver could give the same number to another array before the launch is made. So a handle counts its holders, as
every Python object does, and the memory is freed when the last holder drops it.
"""

from __future__ import annotations

import contextlib
from typing import Protocol, Self


class OwnsMemory(Protocol):
    """A device whose handles are `MemoryHandle`."""

    def release_memory(self, number: int, at_once: bool) -> None:
        """Free memory that nobody holds. The garbage collector may call this at any moment, in any thread."""


class MemoryHandle(int):
    """A number as the driver takes it. It keeps the device alive."""

    device: OwnsMemory
    at_once = False  # True after `array.close()`: free now; False after collection: the next driver call may do it

    @classmethod
    def of(cls, device: OwnsMemory, number: int) -> Self:
        """A handle that frees `number` on `device` when its last holder drops it."""
        handle = cls(number)
        handle.device = device
        return handle

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            self.device.release_memory(int(self), self.at_once)


class AddressPart(int):
    """The address of a part of memory. It keeps the whole memory alive."""

    whole: object

    @classmethod
    def of(cls, whole: int, offset: int) -> Self:
        """The address `offset` bytes behind that of `whole`."""
        part = cls(whole + offset)
        part.whole = whole
        return part
