"""The buffer that kernels read their blocks of scalar arguments from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .libgl import Constants as C

__all__ = ["ScalarBlocks"]

_BUFFER_BYTES = 1 << 16


class ScalarBlocks:
    """Blocks that were used before stay in the buffer; `bound` is the binding and the block that is set in the context."""

    def __init__(self, gl: Any, buffer: int) -> None:
        self._buffer = buffer
        self._alignment = max(16, gl.integer(C.UNIFORM_BUFFER_OFFSET_ALIGNMENT))
        self._offsets: dict[bytes, int] = {}
        self._end = self._size = 0
        self.bound: tuple[int, bytes] | None = None

    def bind(self, gl: Any, binding: int, block: bytes) -> None:
        """Have kernels read `block` at `binding`."""
        if block not in self._offsets:
            self.place(gl, {block})
        gl.glBindBufferRange(C.UNIFORM_BUFFER, binding, self._buffer, self._offsets[block], len(block))
        self.bound = (binding, block)

    def place(self, gl: Any, blocks: set[bytes]) -> None:
        """Append new blocks in one upload.

        A full buffer gets new storage and starts over: launches that are running still read the old storage.
        """
        new = [block for block in blocks if block not in self._offsets]
        if not new:
            return
        gl.glBindBuffer(C.UNIFORM_BUFFER, self._buffer)
        if self._end + self._padded_size(new) > self._size:
            new = list(blocks)  # those in the old storage must be written again
            self._size = max(_BUFFER_BYTES, self._padded_size(new))
            self._end = 0
            self._offsets.clear()
            self.bound = None
            gl.glBufferData(C.UNIFORM_BUFFER, self._size, None, C.STREAM_DRAW)
        start = self._end
        for block in new:
            self._offsets[block] = self._end
            self._end += self._padded_size((block,))
        data = b"".join(block.ljust(self._padded_size((block,)), b"\0") for block in new)
        gl.glBufferSubData(C.UNIFORM_BUFFER, start, len(data), data)

    def _padded_size(self, blocks: Sequence[bytes]) -> int:
        return sum(len(block) + -len(block) % self._alignment for block in blocks)
