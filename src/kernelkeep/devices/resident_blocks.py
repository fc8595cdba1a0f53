"""What a device supplies for resident grids: memory that both sides see, and a kernel that stays.

`Device.open_resident_blocks` gives one; devices without it refuse. The rest of a resident grid is in `resident/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from .array import Array
from .program import Program


class SuspendableGrid(Protocol):
    """A grid that can leave the device for a moment.

    Both methods are called by any thread, one at a time for all grids of a device. Neither may load code, or add a grid. A
    thread that adds a grid or has them go out of the way must hold no lock that these two take.
    """

    device: Any

    def suspend(self) -> None:
        """Have the kernel end at a task boundary, and wait until it has; does nothing if it does not run.

        `DeviceError` with the diagnosis if that takes too long. `resume` is called then as well.
        """

    def resume(self) -> None:
        """Launch it again, if it is still wanted; does nothing if it runs."""


class ResidentBlocks(ABC):
    """A place on the device for one resident grid."""

    @abstractmethod
    def host_memory(self, nbytes: int) -> np.ndarray[Any, Any]:
        """Bytes of host memory that the device reads and writes at the same address."""

    @abstractmethod
    def map_memory(self, memory: np.ndarray[Any, Any]) -> int:
        """Have the device read and write memory of the host, such as that of a mapped file; its address on the device."""

    @abstractmethod
    def address_of(self, array: Array) -> int:
        """Where an array is, for kernels."""

    @property
    @abstractmethod
    def processors(self) -> int:
        """How many of the device's processors the place has."""

    @abstractmethod
    def count_blocks(self, program: Program) -> int:
        """How many blocks of the program's kernel can stay here at once."""

    def prepare(self, program: Program, blocks: int, arguments: tuple[int, ...]) -> None:
        """Do what can be done for `launch` while another kernel is still here. Loads no code, and never waits."""
        return None

    @abstractmethod
    def launch(self, program: Program, blocks: int, arguments: tuple[int, ...]) -> None:
        """Launch the program's kernel, beside all other work."""

    def launched(self, program: Program, blocks: int) -> None:
        """Called when `launch` has returned, for what need not be done before. The kernel runs."""
        return None

    @abstractmethod
    def wait(self, timeout_seconds: float) -> bool:
        """Whether the kernel has ended, after at most that time; True where none was launched. `DeviceError` if it failed."""

    @abstractmethod
    def add(self, grid: SuspendableGrid) -> None:
        """Register a grid and launch it: from now on the device's other work gets it out of the way where it must.

        One that is registered is launched if it does not run.
        """

    @abstractmethod
    def remove(self, grid: SuspendableGrid) -> None:
        """The grid's kernel has ended, and is not launched again."""

    @abstractmethod
    def out_of_the_way(self) -> AbstractContextManager[None]:
        """For a short block in which no resident grid of the device runs."""

    @abstractmethod
    def close(self) -> None:
        """Give the place back. Its kernel has ended."""
