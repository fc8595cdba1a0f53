"""The memory of batches under way: blocks on the host, arrays on the device, and results that are lent to the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..devices.array import Array
from ..devices.base import Device
from ..devices.lanes import Block, Lanes
from ..errors import OutOfMemory
from .copying import Copier
from .flight import Flight, Result
from .pool import Loan, Pool

__all__ = ["Stores"]

_LENT_BYTES = 1 << 18  # smaller results are copied: that is quicker than the page-locked memory they would hold on to


class Stores:
    """Gives flights their memory and takes it back. All of it is used again and again."""

    def __init__(self, device: Device, lanes: Lanes, depth: int) -> None:
        self.blocks: Pool[Block] = Pool(lanes.block, most=4 * depth)
        self.copier = Copier()
        self._device = device
        self._lanes = lanes
        self._depth = depth
        self._arrays: Pool[Array] = Pool(self._allocate, most=2 * depth)
        self._lent: set[int] = set()
        self._closed = False

    def place(self, flight: Flight) -> dict[int, Any]:
        """Device memory for what a batch brings and what it gives: handles by argument."""
        handles: dict[int, Any] = {}
        for index, block in flight.blocks.items():
            handles[index] = self._home(flight, block, block.nbytes)
        for index, host in flight.borrowed.items():
            handles[index] = self._home(flight, None, max(host.nbytes, 16))
        for result in flight.results:
            index = result.index
            if index in handles or index in flight.values:
                continue
            if self._lanes.shares_memory:
                block = flight.blocks[index] = self.blocks.take(max(result.nbytes, 16))
                if index in flight.cleared:
                    block.host.fill(0)
                handles[index] = block.handle
            else:
                handles[index] = self._home(flight, None, max(result.nbytes, 16))
        return handles

    def set_aside(self, flight: Flight, handles: dict[int, Any]) -> None:
        """Copy results that are in the caller's own arrays: the next batch may write there before this one is downloaded."""
        for result in flight.results:
            if result.index in flight.on_device and result.nbytes:
                aside = self._home(flight, None, max(result.nbytes, 16))
                origin = flight.values[result.index]
                flight.held.append(self._lanes.compute.copy(aside, origin, result.nbytes))
                handles[result.index] = aside

    def _home(self, flight: Flight, block: Block | None, nbytes: int) -> Any:
        if block is not None and block.handle is not None:
            return block.handle
        array = self._arrays.take(nbytes)
        flight.arrays.append((nbytes, array))
        return array.handle

    def _allocate(self, nbytes: int) -> Array:
        try:
            return self._device.empty(nbytes, "u1")
        except OutOfMemory:
            if not self._arrays.clear():
                raise
            return self._device.empty(nbytes, "u1")

    def bring_back(self, flight: Flight, result: Result, handles: Mapping[int, Any]) -> None:
        """Have a result come down, in the block it went up in where that fits."""
        index = result.index
        block = flight.blocks.get(index)
        if self._lanes.shares_memory and block is not None:
            result.block = flight.blocks.pop(index)  # it came back with the others
            return
        if block is None or block.nbytes != max(result.nbytes, 16):
            block = self.blocks.take(max(result.nbytes, 16))
        else:
            del flight.blocks[index]  # what went up comes down in the same block
        result.block = block
        handle = handles[index] if index in handles else flight.values[index]
        flight.held.append(self._lanes.download.download(handle, block))

    def made(self, result: Result) -> np.ndarray[Any, Any]:
        """The result as an array: the block itself where it may be lent, else a copy."""
        block = result.block
        assert block is not None
        if block.lendable and block.nbytes >= _LENT_BYTES and len(self._lent) < 4 * self._depth:
            self._lent.add(id(block))
            result.block = None
            return np.asarray(Loan(block, self)).view(result.dtype).reshape(result.shape)
        made = np.empty(result.shape, result.dtype)
        self.copier.copy(made, block.host[: result.nbytes].view(result.dtype).reshape(result.shape))
        return made

    def take_back(self, block: Block) -> None:
        """A result that was lent is not used any more. Called by the garbage collector, at any moment."""
        self._lent.discard(id(block))
        if not self._closed:
            self.blocks.give(block.nbytes, block)

    def give_blocks_back(self, flight: Flight) -> None:
        """Each block once, though a result may be in the block it went up in."""
        given = set()
        for block in (*flight.blocks.values(), *(result.block for result in flight.results)):
            if block is not None and id(block) not in given:
                given.add(id(block))
                self.blocks.give(block.nbytes, block)
        flight.blocks.clear()

    def give_arrays_back(self, flight: Flight) -> None:
        for nbytes, array in flight.arrays:
            self._arrays.give(nbytes, array)
        flight.arrays.clear()

    def forget(self, flight: Flight) -> None:
        """The device may still write to a flight's memory: it goes, but not to somebody else."""
        flight.blocks.clear()
        flight.arrays.clear()
        for result in flight.results:
            result.block = None

    def close(self) -> None:
        """Let everything idle go; what is lent goes with the arrays of the user."""
        self._closed = True
        self.copier.close()
        self.blocks.clear()
        self._arrays.clear()
