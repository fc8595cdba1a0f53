"""Device memory that is used again: for results that are made and dropped call after call.

Drivers take their time to allocate, and many wait for the whole device before they free. Memory that was only ever used
in the device's own order of work can be given to the next one in that order at once: whatever still uses it comes first.
"""

from __future__ import annotations

from collections import deque
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
        self.blocks: deque[tuple[int, Any]] = deque()  # the latest first; few enough to look through
        self._most_bytes = min(_MOST_BYTES, device.memory_info().total_bytes // _SHARE)
        self._closed = False

    def take(self, nbytes: int) -> Any:
        """A block that nobody has; None where there is none."""
        for block in list(self.blocks):
            if block[0] == nbytes:
                try:
                    self.blocks.remove(block)
                except ValueError:
                    continue  # another thread was quicker
                return block[1]
        return None

    def give(self, nbytes: int, handle: Any) -> bool:
        """Keep a block for the next one, in place of those that were kept longest; False where it is too large."""
        if self._closed or self._device.closed or nbytes > self._most_bytes:
            return False
        self.blocks.appendleft((nbytes, handle))
        while len(self.blocks) > _MOST_BLOCKS or sum(size for size, _ in list(self.blocks)) > self._most_bytes:
            self._drop_oldest(collected=True)
        return True

    def _drop_oldest(self, *, collected: bool) -> bool:
        try:
            _, handle = self.blocks.pop()
        except IndexError:
            return False
        self._device.free(handle, collected=collected)
        return True

    def relieve(self, nbytes: int | None) -> bool:
        """The device is out of memory: give it all back. Whether there was any."""
        freed = False
        while self._drop_oldest(collected=False):
            freed = True
        return freed

    def close(self) -> None:
        """Give all memory back."""
        self._closed = True
        self.relieve(None)
