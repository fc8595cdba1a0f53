"""Device memory that is used again: for results that are made and dropped call after call.

Drivers take their time to allocate, and many wait for the whole device before they free. Memory that was only ever used
in the device's own order of work can be given to the next one in that order at once: whatever still uses it comes first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import Device

__all__ = ["Recycler"]

_MOST_BLOCKS = 64
_MOST_BYTES = 1 << 30
_SHARE = 8  # at most this part of the device's memory


class Recycler:
    """Blocks of a device by their size. `give` may be called by the garbage collector, at any moment, in any thread."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._blocks: defaultdict[int, deque[Any]] = defaultdict(deque)
        self._count = 0
        self._nbytes = 0
        self._most_bytes = min(_MOST_BYTES, device.memory_info().total_bytes // _SHARE)

    def take(self, nbytes: int) -> Any:
        """A block that nobody has; None where there is none."""
        try:
            handle = self._blocks[nbytes].pop()
        except IndexError:
            return None
        self._count -= 1
        self._nbytes -= nbytes
        return handle

    def give(self, nbytes: int, handle: Any) -> bool:
        """Keep a block for the next one; False where there are enough."""
        # Counts that two threads change at once may be off by a block; they bound, they do not account.
        if self._device.closed or self._count >= _MOST_BLOCKS or self._nbytes + nbytes > self._most_bytes:
            return False
        self._count += 1
        self._nbytes += nbytes
        self._blocks[nbytes].append(handle)
        return True

    def relieve(self, nbytes: int | None) -> bool:
        """The device is out of memory: give it all back. Whether there was any."""
        freed = False
        for size in list(self._blocks):
            while (handle := self.take(size)) is not None:
                self._device._free(handle)
                freed = True
        return freed

    def close(self) -> None:
        """Give all memory back."""
        self.relieve(None)
