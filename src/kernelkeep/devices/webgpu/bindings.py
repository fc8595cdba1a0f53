"""The bind groups of kernels, and the buffer that their scalar arguments are in.

A bind group holds its buffers, so it must go when an array is closed: it is found by the numbers of its buffers, which are never
used twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .context import Context
from .native import native
from .types import new

_MAX_GROUPS = 4096
_BUFFER_BYTES = 1 << 18
UNIFORM, COPY_TO = 0x40, 0x08  # WGPUBufferUsage

Key = tuple[int, ...]  # the number of a kernel, and those of its buffers


class BindGroups:
    """Bind groups that were used before. The caller has the lock."""

    def __init__(self) -> None:
        self.found: dict[Key, Any] = {}  # with the pipeline to be used with it
        self._of_number: dict[int, set[Key]] = {}

    def keep(self, key: Key, group: Any, pipeline: Any) -> tuple[Any, Any]:
        """Keep a bind group for launches with the same kernel and buffers."""
        if len(self.found) >= _MAX_GROUPS:
            self.forget_all()
        self.found[key] = group, pipeline
        for number in key:
            self._of_number.setdefault(number, set()).add(key)
        return group, pipeline

    def forget(self, number: int) -> None:
        """Release the bind groups of a buffer or kernel that is gone."""
        for key in self._of_number.pop(number, ()):
            group, _ = self.found.pop(key)
            native().lib.wgpuBindGroupRelease(group)
            for other in key:
                if other != number and (keys := self._of_number.get(other)):
                    keys.discard(key)
                    if not keys:
                        del self._of_number[other]

    def forget_all(self) -> None:
        """Release all."""
        for group, _ in self.found.values():
            native().lib.wgpuBindGroupRelease(group)
        self.found.clear()
        self._of_number.clear()


class ScalarBlocks:
    """Blocks of scalar arguments. Those that were used before stay in the buffer."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.alignment = max(16, int(context.limits.minUniformBufferOffsetAlignment))
        self.buffer = new_buffer(context, _BUFFER_BYTES, UNIFORM | COPY_TO)
        self._places: dict[bytes, int] = {}
        self._offsets: dict[tuple[int, ...], Any] = {}
        self._end = 0
        self.rounds = 0  # how often the buffer was started over

    def place(self, blocks: Iterable[bytes]) -> None:
        """Have all these blocks in the buffer. A full one starts over: what was submitted before still reads the old blocks."""
        new = [block for block in blocks if block not in self._places]
        if not new:
            return
        if self._end + sum(map(self._padded, new)) > _BUFFER_BYTES:
            self._places.clear()
            self._end = 0
            self.rounds += 1
            new = list(blocks)
        data = bytearray()
        for block in new:
            self._places[block] = self._end + len(data)
            data += block + bytes(-len(block) % self.alignment)
        ffi, lib = native()
        lib.wgpuQueueWriteBuffer(self._context.queue, self.buffer, self._end, ffi.from_buffer(data), len(data))
        self._end += len(data)

    def _padded(self, block: bytes) -> int:
        return len(block) + -len(block) % self.alignment

    def offsets(self, block: bytes, parts: tuple[int, ...]) -> Any:
        """The offsets of a block's parts in the buffer, one for each uniform binding."""
        at = self._places[block]
        key = (at, *parts)
        found = self._offsets.get(key)
        if found is None:
            found = new("uint32_t[]", [at + part for part in parts])
            if len(self._offsets) >= _MAX_GROUPS:
                self._offsets.clear()
            self._offsets[key] = found
        return found


def new_buffer(context: Context, nbytes: int, usage: int) -> Any:
    """A buffer of wgpu-native. Whether there was memory for it is to be checked. The caller has the lock."""
    lib = native().lib
    return lib.wgpuDeviceCreateBuffer(context.raw, new("WGPUBufferDescriptor *", {"size": nbytes, "usage": usage}))
