"""Copies between host and device, and on the device. WebGPU copies whole words; a part of one is read, changed and written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .context import Context
from .native import native
from .staging import Staging, Transfer, words
from .types import cast

_MAX_PENDING_BYTES = 64 << 20


class Buffer(NamedTuple):
    """A buffer of wgpu-native, or a part of one that begins at a multiple of four bytes."""

    raw: Any
    nbytes: int  # whole words
    offset: int = 0
    is_part: bool = False


class Copies:
    """The copies of a device. `encode` submits a command buffer. The caller has the lock."""

    def __init__(self, context: Context, encode: Callable[[Callable[[Any], None]], None]) -> None:
        self._context, self._encode = context, encode
        self.staging = Staging(context)
        self.pending_bytes = 0  # of uploads, which wgpu keeps until something is submitted

    def upload(self, target: Buffer, host: np.ndarray[Any, Any]) -> None:
        """Copy a contiguous array to the beginning of a buffer."""
        buffer, size, offset, is_part = target
        whole = host.nbytes & ~3
        if whole:
            self._write(buffer, offset, host.ctypes.data, whole)
        if whole < host.nbytes:
            end = np.zeros(4, "u1")
            if words(host.nbytes) < size or is_part:  # what follows belongs to the array
                self.begin_download(target, 4, whole).finish(end.ctypes.data)
            end[: host.nbytes - whole] = host.reshape(-1).view("u1")[whole:]
            self._write(buffer, offset + whole, end.ctypes.data, 4)
        self._context.check("copying to the device")

    def _write(self, buffer: Any, offset: int, address: int, nbytes: int) -> None:
        lib = native().lib
        lib.wgpuQueueWriteBuffer(self._context.queue, buffer, offset, cast("void *", address), nbytes)
        self.pending_bytes += nbytes
        if self.pending_bytes > _MAX_PENDING_BYTES:
            self._encode(lambda encoder: None)

    def begin_download(self, origin: Buffer, nbytes: int, offset: int = 0) -> Transfer:
        """Have bytes of a buffer copied for the host; the offset is a multiple of four."""
        transfer, encode_copy = self.new_download(origin, nbytes, offset)
        self._encode(encode_copy)
        transfer.begin()
        return transfer

    def new_download(self, origin: Buffer, nbytes: int, offset: int = 0) -> tuple[Transfer, Callable[[Any], None]]:
        """A download that is not begun, and what encodes its copy."""
        transfer = Transfer(self._context, self.staging, nbytes)
        start, size = origin.offset + offset, words(nbytes)
        copy = native().lib.wgpuCommandEncoderCopyBufferToBuffer
        return transfer, lambda encoder: copy(encoder, origin.raw, start, transfer.buffer, 0, size)

    def copy(self, target: Buffer, origin: Buffer, nbytes: int) -> None:
        """Copy from the beginning of a buffer to that of another."""
        # WebGPU copies nothing within one buffer.
        if target.raw == origin.raw or (nbytes % 4 and (words(nbytes) < target.nbytes or target.is_part)):
            part = np.empty(nbytes, "u1")
            self.begin_download(origin, nbytes).finish(part.ctypes.data)
            self.upload(target, part)
            return
        self._copy(origin.raw, origin.offset, target.raw, target.offset, words(nbytes))

    def _copy(self, origin: Any, offset: int, target: Any, target_offset: int, nbytes: int) -> None:
        copy = native().lib.wgpuCommandEncoderCopyBufferToBuffer
        self._encode(lambda encoder: copy(encoder, origin, offset, target, target_offset, nbytes))

    def clear(self, target: Buffer, nbytes: int) -> None:
        """Fill the beginning of a buffer with zeros."""
        lib = native().lib
        size = min(words(nbytes), target.nbytes)
        self._encode(lambda encoder: lib.wgpuCommandEncoderClearBuffer(encoder, target.raw, target.offset, size))
