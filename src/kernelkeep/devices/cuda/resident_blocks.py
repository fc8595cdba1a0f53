"""A place for a resident grid on a CUDA device: a stream of its own, in a green context where it gets some of the SMs only."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, DeviceError, KernelKeepError
from ..array import Array
from ..program import Program
from ..resident_blocks import ResidentBlocks, SuspendableGrid
from .program import CudaProgram
from .resident_queue import ResidentQueue
from .resident_room import Share

if TYPE_CHECKING:
    from .device import CudaDevice

_CALLS_SECONDS = 100e-6  # for what waits to be given back, while tasks wait for the grid


class CudaResidentBlocks(ResidentBlocks):
    """See `ResidentBlocks`."""

    def __init__(self, device: CudaDevice, sms: int | None) -> None:
        self._device = device
        self._queue = ResidentQueue(device, sms)
        self._registered: list[np.ndarray[Any, Any]] = []

    def host_memory(self, nbytes: int) -> np.ndarray[Any, Any]:
        return self._device.pinned_empty(nbytes, "u1")

    def map_memory(self, memory: np.ndarray[Any, Any]) -> int:
        device, driver = self._device, self._device.driver
        address = int(memory.ctypes.data)
        with device.current:
            (status, _flags) = driver.cuMemHostGetFlags(address)
            if status != device.success:  # not page-locked: memory of a mapped file
                flags = driver.CU_MEMHOSTREGISTER_PORTABLE | driver.CU_MEMHOSTREGISTER_DEVICEMAP
                doing = "giving the device access to host memory"
                self._registered.append(memory)  # before the call: Ctrl-C may come when the driver has page-locked it
                try:
                    device.call(driver.cuMemHostRegister, address, memory.nbytes, flags, doing=doing)
                except KernelKeepError:
                    self._registered.pop()
                    raise
            return int(device.call(driver.cuMemHostGetDevicePointer, address, 0))

    def address_of(self, array: Array) -> int:
        if array.device is not self._device:
            raise ArgumentError(f"array must be on {self._device.spec}")
        if (handle := array.handle) is None:
            raise DeviceError("an array of the resident grid was closed, so it cannot be launched again: stop it first")
        return int(handle)

    @property
    def processors(self) -> int:
        return self._queue.sms

    def count_blocks(self, program: Program) -> int:
        return self._count_each(program) * self._queue.sms

    def _count_each(self, program: Program) -> int:
        """How many blocks of the program's kernel fit on one processor."""
        return program.kernel().resident_groups() // self._device.count_sms()

    def prepare(self, program: Program, blocks: int, arguments: tuple[int, ...]) -> None:
        assert isinstance(program, CudaProgram)
        program.kernel_without_code().prepare_first(blocks, arguments)

    def launch(self, program: Program, blocks: int, arguments: tuple[int, ...]) -> None:
        if not self._device.residents.room.is_free_for(self):
            self._take_room(program, blocks)
        program.kernel().launch(blocks, arguments, queue=self._queue, cooperative=True)

    def launched(self, program: Program, blocks: int) -> None:
        self._take_room(program, blocks)

    def _take_room(self, program: Program, blocks: int) -> None:
        share = Share(blocks, self._count_each(program), self._queue.sms)
        self._device.residents.room.take(self, share, self._device.spec)

    def wait(self, timeout_seconds: float) -> bool:
        return self._queue.wait(timeout_seconds)

    def add(self, grid: SuspendableGrid) -> None:
        try:
            self._device.residents.add(grid)
        except BaseException:
            if grid not in self._device.residents.grids:  # one that is registered may be launched later
                self._device.residents.room.give_back(self)
            raise

    def remove(self, grid: SuspendableGrid) -> None:
        self._device.residents.room.give_back(self)
        self._device.residents.remove(grid)

    def out_of_the_way(self) -> AbstractContextManager[None]:
        return self._device.residents.out_of_the_way(calls_seconds=_CALLS_SECONDS)

    def close(self) -> None:
        if self._device.lost:
            return
        while self._registered:
            self._device.discarded.add(_unregister, self._device.driver, self._registered.pop())
        self._queue.close()


def _unregister(driver: Any, memory: np.ndarray[Any, Any]) -> None:
    driver.cuMemHostUnregister(int(memory.ctypes.data))
