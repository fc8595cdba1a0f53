"""A place for a resident grid on a CUDA device: a stream of its own, in a green context where it gets some of the SMs only."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError
from ..array import Array
from ..program import Program
from ..resident_blocks import ResidentBlocks, SuspendableGrid
from .synchronization import CudaFence, CudaQueue

if TYPE_CHECKING:
    from .device import CudaDevice


class CudaResidentBlocks(ResidentBlocks):
    """See `ResidentBlocks`."""

    def __init__(self, device: CudaDevice, sms: int | None) -> None:
        self._device = device
        self._queue = CudaQueue(device)
        device.streams.queues.discard(self._queue)
        self._fence: CudaFence | None = None
        self._grid: SuspendableGrid | None = None

    def host_memory(self, nbytes: int) -> np.ndarray[Any, Any]:
        return self._device.pinned_empty(nbytes, "u1")

    def map_memory(self, memory: np.ndarray[Any, Any]) -> int:
        return int(memory.ctypes.data)

    def address_of(self, array: Array) -> int:
        if array.device is not self._device:
            raise ArgumentError(f"array must be on {self._device.spec}")
        return int(array.handle)

    @property
    def processors(self) -> int:
        return self._device.attribute(self._device.driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)

    def count_blocks(self, program: Program) -> int:
        return program.kernel().resident_groups()

    def launch(self, program: Program, blocks: int, arguments: tuple[int, ...]) -> None:
        program.kernel().launch(blocks, arguments, queue=self._queue, cooperative=True)
        self._fence = self._queue.fence()

    def wait(self, timeout_seconds: float) -> bool:
        return self._fence is None or self._fence.wait(timeout_seconds)

    def add(self, grid: SuspendableGrid) -> None:
        self._grid = grid
        grid.resume()

    def remove(self, grid: SuspendableGrid) -> None:
        self._grid = None

    @contextlib.contextmanager
    def out_of_the_way(self) -> Iterator[None]:
        grid = self._grid
        if grid is not None:
            grid.suspend()
        try:
            yield
        finally:
            if grid is not None:
                grid.resume()

    def close(self) -> None:
        self._fence = None
