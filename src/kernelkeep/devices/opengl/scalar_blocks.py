"""The buffer that kernels read their blocks of scalar arguments from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .libgl import Constants as C

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
        new = self._padded(block for block in blocks if block not in self._offsets)
        if not new:
            return
        size = sum(map(len, new.values()))
        gl.glBindBuffer(C.UNIFORM_BUFFER, self._buffer)
        if self._end + size > self._size:
            new = self._padded(blocks)  # those in the old storage must be written again
            size = sum(map(len, new.values()))
            self._size = max(_BUFFER_BYTES, size)
            self._end = 0
            self._offsets.clear()
            self.bound = None
            gl.glBufferData(C.UNIFORM_BUFFER, self._size, None, C.STREAM_DRAW)
        gl.glBufferSubData(C.UNIFORM_BUFFER, self._end, size, b"".join(new.values()))
        for block, padded in new.items():
            self._offsets[block] = self._end
            self._end += len(padded)

    def _padded(self, blocks: Iterable[bytes]) -> dict[bytes, bytes]:
        alignment = self._alignment
        return {block: block + b"\0" * (-len(block) % alignment) for block in blocks}
