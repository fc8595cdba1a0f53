"""Three orders of work that run beside each other: what the executor moves batches on.

`device._open_lanes()` gives upload, compute and download lanes. A device with several queues has one behind each; with
one queue they are three names for it, and order comes by itself. Batches wait in *blocks*: host memory that the device
copies from and to directly, or, where host and device have the same memory, that the kernel itself works on.

Everything here returns at once. What a call gives back is to be held until a later mark of that lane has passed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from .order import Fence, Queue

__all__ = ["Block", "Lane", "Lanes", "Mark"]


class Block:
    """Host memory for a batch on its way.

    `handle` is what a kernel takes where it works on this very memory, else None. A *lendable* block may outlive the
    executor and the device: its memory can be given to the user as the result.
    """

    lendable = True

    def __init__(self, host: np.ndarray[Any, Any], handle: Any = None) -> None:
        self.host = host  # bytes
        self.nbytes = host.nbytes
        self.handle = handle
        self.address = host.ctypes.data


class Mark(Fence):
    """A point in a lane's work that knows when it was passed."""


class Lane(ABC):
    """One order of work."""

    queue: Queue | None = None  # for `kernel.prepare`; None is the device's own

    @abstractmethod
    def upload(self, handle: Any, block: Block) -> Any:
        """Copy a block to device memory; a block that is device memory is handed over to the device."""

    @abstractmethod
    def upload_from(self, handle: Any, host: np.ndarray[Any, Any]) -> Any:
        """Copy from any host array, which the caller leaves alone meanwhile."""

    @abstractmethod
    def download(self, handle: Any, block: Block) -> Any:
        """Copy device memory to a block; a block that is device memory is handed back to the host."""

    @abstractmethod
    def copy(self, target: Any, origin: Any, nbytes: int) -> Any:
        """Copy on the device."""

    @abstractmethod
    def clear(self, handle: Any, nbytes: int) -> Any:
        """Fill device memory with zeros."""

    @abstractmethod
    def wait_for(self, mark: Fence) -> None:
        """What is given to this lane from now on starts after the mark."""

    @abstractmethod
    def mark(self) -> Mark:
        """A point after everything given to this lane so far."""

    def flush(self) -> None:
        """Have the driver begin."""
        return None


class Lanes(ABC):
    """Upload, compute, download."""

    upload: Lane
    compute: Lane
    download: Lane
    shares_memory = False  # blocks are device memory, and filling one is the upload

    @property
    def single(self) -> bool:
        """Whether the three are one queue, so that nothing has to wait for anything."""
        return self.upload is self.download

    @property
    def all(self) -> tuple[Lane, ...]:
        """Every lane there is."""
        return (self.upload,) if self.single else (self.upload, self.compute, self.download)

    @abstractmethod
    def block(self, nbytes: int) -> Block:
        """A new block."""

    @abstractmethod
    def times(self, marks: Sequence[Any]) -> list[float]:
        """When marks that have passed were passed, in seconds of `time.perf_counter`."""

    def close(self) -> None:
        """Let the queues go. Everything given to them is done."""
        return None
