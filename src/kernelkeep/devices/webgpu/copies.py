"""Copies between host and device, and on the device. WebGPU copies whole words; a part of one is read, changed and written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .context import Context
from .native import native
from .staging import Staging, Transfer, words
from .types import cast

_MAX_PENDING_BYTES = 64 << 20
Buffer = tuple[Any, int]  # a buffer of wgpu-native and its size


class Copies:
    """The copies of a device. `encode` submits a command buffer. The caller has the lock."""

    def __init__(self, context: Context, encode: Callable[[Callable[[Any], None]], None]) -> None:
        self._context, self._encode = context, encode
        self.staging = Staging(context)
        self.pending_bytes = 0  # of uploads, which wgpu keeps until something is submitted

    def upload(self, target: Buffer, host: np.ndarray[Any, Any]) -> None:
        """Copy a contiguous array to the beginning of a buffer."""
        buffer, size = target
        whole = host.nbytes & ~3
        if whole:
            self._write(buffer, 0, host.ctypes.data, whole)
        if whole < host.nbytes:
            end = np.zeros(4, "u1")
            if words(host.nbytes) < size:  # what follows belongs to the array
                self.begin_download(target, 4, whole).finish(end.ctypes.data)
            end[: host.nbytes - whole] = host.reshape(-1).view("u1")[whole:]
            self._write(buffer, whole, end.ctypes.data, 4)
        self._context.check("copying to the device")

    def _write(self, buffer: Any, offset: int, address: int, nbytes: int) -> None:
        lib = native().lib
        lib.wgpuQueueWriteBuffer(self._context.queue, buffer, offset, cast("void *", address), nbytes)
        self.pending_bytes += nbytes
        if self.pending_bytes > _MAX_PENDING_BYTES:
            self._encode(lambda encoder: None)

    def begin_download(self, origin: Buffer, nbytes: int, offset: int = 0) -> Transfer:
        """Have bytes of a buffer copied for the host; the offset is a multiple of four."""

        def copy(staging: Any, size: int) -> None:
            self._copy(origin[0], offset, staging, size)

        return Transfer(self._context, self.staging, copy, nbytes)

    def copy(self, target: Buffer, origin: Buffer, nbytes: int) -> None:
        """Copy from the beginning of a buffer to that of another."""
        if nbytes % 4 and words(nbytes) < target[1]:
            part = np.empty(nbytes, "u1")
            self.begin_download(origin, nbytes).finish(part.ctypes.data)
            self.upload(target, part)
            return
        self._copy(origin[0], 0, target[0], words(nbytes))

    def _copy(self, origin: Any, offset: int, target: Any, nbytes: int) -> None:
        lib = native().lib
        self._encode(
            lambda encoder: lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, origin, offset, target, 0, nbytes)
        )

    def clear(self, target: Buffer, nbytes: int) -> None:
        """Fill the beginning of a buffer with zeros."""
        lib = native().lib
        buffer, size = target
        self._encode(lambda encoder: lib.wgpuCommandEncoderClearBuffer(encoder, buffer, 0, min(words(nbytes), size)))
