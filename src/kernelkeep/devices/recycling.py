"""Reuses device memory of results that are created and dropped call after call.

Drivers allocate slowly, and many wait for the whole device before they free. Memory that was only used in the device's own
order of work can be reused at once: whatever still uses it runs first.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import Device

_MAX_BLOCKS = 64
_MAX_BYTES = 1 << 30
_SHARE = 8  # at most an eighth of the device's memory


class Recycler:
    """Blocks of a device by their size. `give` may be called by the garbage collector, at any moment, in any thread."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.blocks: deque[tuple[int, Any]] = deque()  # the latest first
        self._max_bytes = min(_MAX_BYTES, device.memory_info().total_bytes // _SHARE)
        self._largest = 0  # of the blocks there ever were
        self._closed = False

    def take(self, nbytes: int) -> Any:
        """A free block of this size; None if there is none."""
        try:
            latest = self.blocks.popleft()
        except IndexError:
            return None
        if latest[0] == nbytes:  # as a rule: a loop makes and drops results of one size
            return latest[1]
        self.blocks.appendleft(latest)
        for block in list(self.blocks):
            if block[0] == nbytes:
                try:
                    self.blocks.remove(block)
                except ValueError:
                    continue  # another thread took it
                return block[1]
        return None

    def give(self, nbytes: int, handle: Any) -> bool:
        """Keep a block for reuse and drop the oldest ones above the limits; False if it is too large to keep."""
        if self._closed or self._device.closed or nbytes > self._max_bytes:
            return False
        if nbytes > self._largest:
            self._largest = nbytes
        self.blocks.appendleft((nbytes, handle))
        count = len(self.blocks)
        if count > _MAX_BLOCKS or count * self._largest > self._max_bytes:
            while len(self.blocks) > _MAX_BLOCKS or sum(size for size, _ in list(self.blocks)) > self._max_bytes:
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
        """The device is out of memory: free all blocks. Returns whether there were any."""
        freed = False
        while self._drop_oldest(collected=False):
            freed = True
        return freed

    def close(self) -> None:
        """Free all blocks."""
        self._closed = True
        self.relieve(None)

    def mark_lost(self, reason: str) -> None:
        """Keep nothing from now on: the memory is the parent's."""
        self._closed = True
