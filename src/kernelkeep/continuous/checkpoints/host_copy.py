"""A copy of the state in host memory, brought up to date from the device: what changed, at the speed of the bus.

Blocks come through two buffers that the device copies to directly, and go on from there with several cores. So the device
needs no memory for it, and the host's large memory is ordinary.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...devices.array import Array
from ...devices.base import Device
from ...devices.lanes import Block, Lanes, Mark
from ...execution.copying import Copier
from ...storage.large_file import aligned_bytes
from .block_digest import BLOCK_BYTES
from .free_memory import free_memory

_STAGING_BYTES = 1 << 23  # each of the two; pinning takes half a millisecond for a mebibyte
_TOUCHED_BYTES = 1 << 24
_LEAST_STAGED = 1 << 20  # smaller parts are downloaded straight to where they belong
_PIECE_BYTES = 1 << 23
Span = tuple[int, int]  # bytes of an array, from and to


def _tell_nobody(name: str, end: int) -> None:
    pass


class HostCopy:
    """Memory for arrays, by name."""

    def __init__(
        self, device: Device, lanes: Lanes, *, staging_bytes: int = _STAGING_BYTES, staged: bool | None = None
    ) -> None:
        assert staging_bytes % BLOCK_BYTES == 0
        self._device = device
        self._lanes = lanes
        self._staging_bytes = staging_bytes
        self._is_staged = device.capabilities.pinned_memory if staged is None else staged
        self._memory: dict[str, np.ndarray[Any, Any]] = {}
        self._staging: list[np.ndarray[Any, Any]] = []
        self._copier = Copier()
        self._toucher: threading.Thread | None = None
        self._stop_touching = threading.Event()

    def prepare(self, sizes: dict[str, int]) -> None:
        """Get memory for arrays of these sizes while the run goes on: the system gives it only when it is first written to."""
        touched = []
        with contextlib.suppress(MemoryError):  # the first checkpoint says so
            touched = [self.memory(name, nbytes) for name, nbytes in sizes.items() if nbytes >= _TOUCHED_BYTES]
            if touched and self._is_staged:
                self._staging_buffer(1)

        def touch() -> None:
            for memory in touched:
                for at in range(0, memory.nbytes, _TOUCHED_BYTES):
                    if self._stop_touching.is_set():
                        return
                    memory[at : at + _TOUCHED_BYTES] = 0

        if touched:
            self._toucher = threading.Thread(target=touch, name="kernelkeep-host-copy", daemon=True)
            self._toucher.start()

    def memory(self, name: str, nbytes: int) -> np.ndarray[Any, Any]:
        """The bytes of an array; what they were is lost where it grew. `MemoryError` where the machine has too few."""
        memory = self._memory.get(name)
        if memory is None or memory.nbytes < nbytes:
            # Most systems give any amount, and end the process when it is used.
            if nbytes >= _TOUCHED_BYTES and (free := free_memory()) is not None and nbytes > free:
                raise MemoryError(f"it needs {nbytes:,} bytes, and {free:,} are free")
            memory = self._memory[name] = aligned_bytes(nbytes)
        return memory[:nbytes]

    def update(
        self, name: str, array: Array, spans: Sequence[Span], reach: Callable[[str, int], None] = _tell_nobody
    ) -> None:
        """Download parts of an array, in order. Nothing else runs on the device. `reach` is told up to where it is complete."""
        self._end_touching()
        memory = self.memory(name, max((end for _, end in spans), default=0))
        if not self._is_staged:
            for begin, end in _pieces(spans, _PIECE_BYTES):
                self._download(array, begin, memory[begin:end])
                reach(name, end)
            return
        arriving: tuple[Mark, Any, np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
        before = 0  # where the part that is arriving ends
        turn = 0
        for begin, end in _pieces(spans, self._staging_bytes):
            if end - begin < min(_LEAST_STAGED, self._staging_bytes):
                self._download(array, begin, memory[begin:end])
                continue  # those before it may still be on their way
            turn = 1 - turn
            staged = self._staging_buffer(turn)[: end - begin]
            part = _part(array, begin, end)
            lane = self._lanes.download
            held = [part, lane.download(part.handle, Block(staged))]
            mark = lane.mark()
            lane.flush()
            if arriving is not None:
                self._arrive(*arriving)
                reach(name, before)
            arriving, before = (mark, held, memory[begin:end], staged), end
        if arriving is not None:
            self._arrive(*arriving)

    def _arrive(self, mark: Mark, held: Any, target: np.ndarray[Any, Any], staged: np.ndarray[Any, Any]) -> None:
        mark.wait()
        self._copier.copy(target, staged)

    def _download(self, array: Array, begin: int, out: np.ndarray[Any, Any]) -> None:
        part = array if out.nbytes == array.nbytes else _part(array, begin, begin + out.nbytes)
        part.numpy(out=out.view(part.dtype).reshape(part.shape))

    def _staging_buffer(self, number: int) -> np.ndarray[Any, Any]:
        while len(self._staging) <= number:
            self._staging.append(self._device.pinned_empty(self._staging_bytes, "u1"))
        return self._staging[number]

    def _end_touching(self) -> None:
        if self._toucher is not None:
            self._stop_touching.set()
            self._toucher.join()
            self._toucher = None

    def close(self) -> None:
        """Free the memory."""
        self._end_touching()
        self._copier.close()
        self._staging.clear()
        self._memory.clear()


def _part(array: Array, begin: int, end: int) -> Array:
    size = array.dtype.itemsize
    return array.reshape(-1)[begin // size : end // size]


def _pieces(spans: Sequence[Span], most: int) -> Iterator[Span]:
    for begin, end in spans:
        for at in range(begin, end, most):
            yield at, min(at + most, end)
