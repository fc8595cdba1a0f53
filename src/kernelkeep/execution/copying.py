"""Copying host arrays with more than one core: one core alone reaches a fifth of the bandwidth of the bus.

It is done in C where that was built (`_copying.c`), else by threads of Python's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any

import numpy as np

from .. import settings

_PIECE = 1 << 20  # bytes that are worth waking a thread for
_MOST_HELPERS = 3
_MOST_NATIVE_HELPERS = 5  # beside a device that reads the memory meanwhile, eleven of 16 cores were slower
_PLAIN_KINDS = "biufc"  # whose arrays are buffers of bytes for C

_Piece = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], threading.Lock]


class Copier:
    """Copies arrays, large ones in pieces side by side. Some of the cores are left to others.

    The threads are plain ones with a queue: a pool's futures would cost as much as the copy of a megabyte.
    """

    def __init__(self) -> None:
        self._native = _native_copy()
        cores = os.cpu_count() or 1
        if self._native is not None:
            self.helpers = max(0, min(_MOST_NATIVE_HELPERS, cores * 3 // 4 - 1))
        else:
            self.helpers = max(0, min(_MOST_HELPERS, cores // 2 - 1))
        self._pieces: SimpleQueue[_Piece | None] | None = None
        self._starting = threading.Lock()

    def fast_copy(self, arrays: Iterable[tuple[np.dtype[Any], int]]) -> Callable[[Any, Any, int, bool], None] | None:
        """The function in C, where it copies arrays of all these dtypes and sizes, each with one core; else None."""
        plain = all(dtype.kind in _PLAIN_KINDS and 0 < nbytes < _PIECE for dtype, nbytes in arrays)
        return self._native if plain else None

    def copy(self, block: np.ndarray[Any, Any], host: np.ndarray[Any, Any], *, streaming: bool = False) -> None:
        """Copy an array to the beginning of a block of bytes; `streaming` where only a device reads them next."""
        nbytes = host.nbytes
        if self._native is not None and host.flags.c_contiguous and host.dtype.kind in _PLAIN_KINDS:
            large = nbytes >= _PIECE
            self._native(block, host, self.helpers if large else 0, streaming and large)
            return
        self._copy_arrays(block[:nbytes].view(host.dtype).reshape(host.shape), host)

    def copy_back(self, host: np.ndarray[Any, Any], block: np.ndarray[Any, Any]) -> None:
        """Copy the beginning of a block of bytes to a new array."""
        nbytes = host.nbytes
        if not nbytes:
            return
        if self._native is not None and host.dtype.kind in _PLAIN_KINDS:
            origin = block if block.nbytes == nbytes else block[:nbytes]
            self._native(host, origin, self.helpers if nbytes >= _PIECE else 0, False)
            return
        self._copy_arrays(host, block[:nbytes].view(host.dtype).reshape(host.shape))

    def _copy_arrays(self, target: np.ndarray[Any, Any], origin: np.ndarray[Any, Any]) -> None:
        pieces = min(self.helpers + 1, target.nbytes // _PIECE)
        if pieces < 2 or not origin.flags.c_contiguous or not self._started():
            np.copyto(target, origin)
        else:
            self._copy_in_pieces(target.reshape(-1), origin.reshape(-1), pieces)

    def _copy_in_pieces(self, targets: np.ndarray[Any, Any], origins: np.ndarray[Any, Any], pieces: int) -> None:
        assert self._pieces is not None
        step = -(-targets.size // pieces)
        done = []
        for at in range(step, targets.size, step):
            lock = threading.Lock()
            lock.acquire()
            done.append(lock)
            self._pieces.put((targets[at : at + step], origins[at : at + step], lock))
        np.copyto(targets[:step], origins[:step])
        for lock in done:
            lock.acquire()

    def _started(self) -> bool:
        with self._starting:
            if self._pieces is None:
                pending: SimpleQueue[_Piece | None] = SimpleQueue()
                try:
                    for _ in range(self.helpers):
                        threading.Thread(target=_work, args=(pending,), name="kernelkeep-copy", daemon=True).start()
                except RuntimeError:  # the interpreter is ending, and starts no more threads
                    self.helpers = 0
                    return False
                self._pieces = pending
        return True

    def close(self) -> None:
        """End the threads."""
        if self._pieces is not None:
            for _ in range(self.helpers):
                self._pieces.put(None)
            self._pieces = None


def _native_copy() -> Callable[[Any, Any, int, bool], None] | None:
    """The function in C, or None where that was not built."""
    if not settings.native():
        return None
    try:
        from .._copying import copy
    except ImportError:
        return None
    return copy


def _work(pending: SimpleQueue[_Piece | None]) -> None:
    while (piece := pending.get()) is not None:
        target, origin, lock = piece
        try:
            np.copyto(target, origin)
        finally:
            lock.release()
        del piece, target, origin, lock  # or the arrays of the last copy would stay alive until the next
