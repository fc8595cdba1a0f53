"""Buffers that the host can read, and copies through them.

Only buffers that no kernel can use can be mapped, so what comes to the host is copied into one of these first. Sizes are
multiples of four bytes, as WebGPU wants them.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from ...errors import DeviceError
from .bindings import COPY_TO, new_buffer
from .native import native
from .types import address_of

if TYPE_CHECKING:
    from .context import Context

_MAP_READ = 0x01  # WGPUBufferUsage and WGPUMapMode
_KEPT_BYTES = 64 << 20


def words(nbytes: int) -> int:
    """The next multiple of four."""
    return -(-nbytes // 4) * 4


class Staging:
    """Buffers that can be mapped, which are kept for the next download of a similar size. The caller has the lock."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._free: dict[int, list[Any]] = {}
        self._kept = 0

    def take(self, nbytes: int) -> tuple[Any, int]:
        """A buffer of at least so many bytes, and its size."""
        size = max(256, 1 << (nbytes - 1).bit_length())
        free = self._free.get(size)
        if free:
            self._kept -= size
            return free.pop(), size
        buffer = new_buffer(self._context, size, _MAP_READ | COPY_TO)
        self._context.check(f"allocating {size:,} bytes for a copy to the host")
        return buffer, size

    def give(self, buffer: Any, size: int) -> None:
        """Keep a buffer that is not mapped."""
        if self._kept + size > _KEPT_BYTES:
            native().lib.wgpuBufferRelease(buffer)
            return
        self._kept += size
        self._free.setdefault(size, []).append(buffer)


class Transfer:
    """A copy of device memory to the host, through `buffer`. It is on its way from `begin` on, after the copy was submitted."""

    def __init__(self, context: Context, staging: Staging, nbytes: int) -> None:
        self._context, self._staging = context, staging
        self._nbytes = nbytes
        self.buffer, self._size = staging.take(words(nbytes))
        self._mapping = 0
        self._finished = False

    def begin(self) -> None:
        """Have the buffer mapped once the work before is done. The caller has the lock."""
        self._mapping = self._context.map_buffer(self.buffer, _MAP_READ, words(self._nbytes))

    @property
    def arrived(self) -> bool:
        """Whether `finish` need not wait."""
        return self._finished or self._context.is_mapped(self._mapping)

    def finish(self, address: int) -> None:
        """Wait, and copy the bytes to an address in host memory; once."""
        if self._finished:
            return
        self._context.wait_until(lambda: self.arrived)  # several threads may ask for one page of timestamps
        lib = native().lib
        with self._context.lock:
            if self._finished:
                return
            if self._context.lost:
                self._context.raise_lost()
            self._finished = True
            if not self._context.take_mapping(self._mapping):
                raise DeviceError(f"{self._context.spec}: memory cannot be mapped for the host")
            mapped = lib.wgpuBufferGetConstMappedRange(self.buffer, 0, words(self._nbytes))
            ctypes.memmove(address, address_of(mapped), self._nbytes)
            lib.wgpuBufferUnmap(self.buffer)
            self._staging.give(self.buffer, self._size)
