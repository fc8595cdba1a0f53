"""The memory of batches: blocks on the host, arrays on the device, and results that are lent to the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..devices.array import Array
from ..devices.base import Device
from ..devices.lanes import Block, Lane, Lanes
from ..errors import OutOfMemory
from ..weak_set import WeakSet
from .copying import Copier
from .pattern import LENT_BYTES, Pattern
from .pool import Loan, Pool
from .submission import Launch, Result, Submission, byte_count

# A batch that moves less than this goes through one lane: waiting for each other costs lanes more than copies of that size take.
_ONE_LANE_BYTES = 1 << 19
_DIRECT_BYTES = 1 << 20  # smaller arrays are copied faster than anybody could wait for their upload


class Buffers:
    """Gives submissions their memory and takes it back to use it again."""

    def __init__(self, device: Device, lanes: Lanes, depth: int) -> None:
        self.blocks: Pool[Block] = Pool(lanes.block, most=4 * depth)
        self.copier = Copier()
        self.one_lane_bytes = _ONE_LANE_BYTES
        self.patterns: WeakSet[Pattern] = WeakSet()  # that keep memory
        self._device = device
        self.lanes = lanes
        self._depth = depth
        self._arrays: Pool[Array] = Pool(self._allocate, most=2 * depth if lanes.reuses_memory else 0)
        self._lent: set[int] = set()
        self._closed = False
        self.small = False  # the last batch is one with memory of its own, a small one
        self.page_lock = False  # large arrays that come again and again may be page-locked where they are
        self.direct = False  # the last large array is one that is uploaded where it is

    def room_for(self, nbytes: int) -> int:
        """How many bytes an array gets: as many as the device would give it."""
        return max(nbytes, self._device.min_bytes)

    def fill(self, block: Block, host: np.ndarray[Any, Any]) -> None:
        """Copy a host array to a block."""
        if host.nbytes:
            self.copier.copy(block.host, host, streaming=not self.lanes.shares_memory)

    def copies_directly(self, host: np.ndarray[Any, Any]) -> bool:
        """Whether a batch that is sent at once is uploaded from this very array."""
        direct = self.direct = host.nbytes >= _DIRECT_BYTES and self.lanes.copies_directly(
            host, page_lock=self.page_lock
        )
        return direct

    def place(self, submission: Submission) -> dict[int, Any]:
        """Device memory for a batch: handles by their cells."""
        handles: dict[int, Any] = dict(submission.on_device)
        for cell, block in submission.blocks.items():
            handles[cell] = self._allocated(submission, block, block.nbytes)
        for cell, host in submission.borrowed.items():
            handles[cell] = self._allocated(submission, None, self.room_for(host.nbytes))
        if len(submission.launches) == 1:
            self._place_made(submission, submission.launches[0], handles)
            return handles
        returned = {result.cell for result in submission.results}
        spent: dict[int, list[Any]] = {}  # memory that no later launch needs, by its size
        for launch in submission.launches:
            for cell in launch.made:
                nbytes = self.room_for(byte_count(*submission.shapes[cell]))
                if self.lanes.shares_memory and cell in returned:
                    block = submission.blocks[cell] = self.blocks.take(nbytes)
                    if cell in launch.cleared:
                        block.host.fill(0)
                    handles[cell] = block.handle
                elif spent.get(nbytes):
                    handles[cell] = spent[nbytes].pop()
                else:
                    handles[cell] = self._allocated(submission, None, nbytes)
            for cell in launch.step.spent:
                if self._may_be_used_again(submission, cell):
                    spent.setdefault(self.room_for(byte_count(*submission.shapes[cell])), []).append(handles[cell])
        needed = len(submission.arrays) * self._depth  # all may be of one size, and each slot needs its own again
        if needed > self._arrays.most and self.lanes.reuses_memory:
            self._arrays.most = needed
        return handles

    def _place_made(self, submission: Submission, launch: Launch, handles: dict[int, Any]) -> None:
        """Memory for what the only launch of a batch makes, all of which comes back."""
        for cell in launch.made:
            nbytes = self.room_for(byte_count(*submission.shapes[cell]))
            if not self.lanes.shares_memory:
                handles[cell] = self._allocated(submission, None, nbytes)
                continue
            block = submission.blocks[cell] = self.blocks.take(nbytes)
            if cell in launch.cleared:
                block.host.fill(0)
            handles[cell] = block.handle

    def _may_be_used_again(self, submission: Submission, cell: int) -> bool:
        """Whether a cell is memory of ours on the device: no scalar, no array of the caller, no block of the host."""
        block = submission.blocks.get(cell)
        return (
            self.lanes.reuses_memory
            and cell in submission.shapes
            and cell not in submission.on_device
            and (block is None or block.handle is None)
        )

    def set_aside(self, submission: Submission, handles: dict[int, Any]) -> None:
        """Copy results that are in the caller's own arrays: the next batch may overwrite them before they are downloaded."""
        for result in submission.results:
            if result.cell in submission.on_device and result.nbytes:
                aside = self._allocated(submission, None, self.room_for(result.nbytes))
                submission.held.append(self.lanes.compute.copy(aside, handles[result.cell], result.nbytes))
                handles[result.cell] = aside

    def _allocated(self, submission: Submission, block: Block | None, nbytes: int) -> Any:
        if block is not None and block.handle is not None:
            return block.handle
        array = self._arrays.take(nbytes)
        submission.arrays.append((nbytes, array))
        return array.handle

    def take_array(self, nbytes: int) -> Array:
        """Device memory for a kit."""
        return self._arrays.take(nbytes)

    def give_array(self, nbytes: int, array: Array) -> None:
        """Take back the device memory of a kit."""
        self._arrays.give(nbytes, array)

    def _allocate(self, nbytes: int) -> Array:
        try:
            return self._device.empty(nbytes, "u1")
        except OutOfMemory:
            for pattern in self.patterns:
                pattern.release_idle()
            if not self._arrays.clear():
                raise
            return self._device.empty(nbytes, "u1")

    def download(self, submission: Submission, result: Result, handles: Mapping[int, Any], lane: Lane) -> None:
        """Enqueue the download of a result, to the block it was uploaded from where that fits."""
        cell = result.cell
        block = submission.blocks.get(cell)
        if self.lanes.shares_memory and block is not None:
            result.block = submission.blocks.pop(cell)  # it was downloaded with the others
            return
        nbytes = self.room_for(result.nbytes)
        if result.nbytes and cell in submission.on_device:
            nbytes = result.nbytes  # a small view of the caller ends there, and its memory may as well
        if block is None or block.nbytes != nbytes:
            block = self.blocks.take(nbytes)
        else:
            del submission.blocks[cell]  # it is the result's block from here on
        result.block = block
        submission.held.append(lane.download(handles[cell], block))

    def result_array(self, result: Result) -> np.ndarray[Any, Any]:
        """The result as an array: the block itself where it may be lent, else a copy."""
        block = result.block
        assert block is not None
        if block.lendable and block.nbytes >= LENT_BYTES and len(self._lent) < 4 * self._depth:
            self._lent.add(id(block))
            result.block = None
            return np.asarray(Loan(block, self)).view(result.dtype).reshape(result.shape)
        made = np.empty(result.shape, result.dtype)
        self.copier.copy_back(made, block.host)
        return made

    def take_back(self, block: Block) -> None:
        """Take back a block that was lent. Called by the garbage collector, at any moment."""
        self._lent.discard(id(block))
        if not self._closed:
            self.blocks.give(block.nbytes, block)

    def give_blocks_back(self, submission: Submission) -> None:
        """Take back the blocks. A result that is in the block it was uploaded from has taken it over."""
        if submission.kit is not None:
            self._give_kit_back(submission)
            return
        for block in submission.blocks.values():
            self.blocks.give(block.nbytes, block)
        submission.blocks.clear()
        for result in submission.results:
            if (block_of := result.block) is not None:
                result.block = None
                self.blocks.give(block_of.nbytes, block_of)

    def give_arrays_back(self, submission: Submission) -> None:
        """Take back the device arrays."""
        if submission.kit is not None and not submission.kit.is_small:
            self._give_kit_back(submission)
        for nbytes, array in submission.arrays:
            self._arrays.give(nbytes, array)
        submission.arrays.clear()

    def _give_kit_back(self, submission: Submission) -> None:
        kit, submission.kit = submission.kit, None
        assert kit is not None and submission.alike is not None
        submission.alike[0].keep_kit(kit)

    def forget(self, submission: Submission) -> None:
        """Drop a submission's memory instead of using it again: the device may still write to it."""
        submission.kit = None
        submission.blocks.clear()
        submission.arrays.clear()
        for result in submission.results:
            result.block = None

    def close(self) -> None:
        """Free everything idle; what is lent is freed with the arrays of the user."""
        self._closed = True
        self.copier.close()
        self.blocks.clear()
        self._arrays.clear()
