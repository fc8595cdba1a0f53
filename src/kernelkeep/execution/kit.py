"""The memory and the bound launch of batches that are alike: nothing is allocated, placed or bound for the next one.

A small batch has host memory as well, which is filled and read again and again. That of a large one comes from the pool for each
batch, since its results are lent to the user.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices.lanes import Transfer

if TYPE_CHECKING:
    from ..devices.array import Array
    from ..devices.lanes import Block, BoundBatch
    from .binding import Wiring
    from .buffers import Buffers
    from .pattern import Pattern
    from .submission import Submission


class Kit:
    """What one batch of a pattern needs. It is used again when the batch is done, and at most one batch has it at a time."""

    __slots__ = (
        "_arrays", "_blocks", "_buffers", "_fast_copy", "_pattern", "_results", "_send", "_send_unmeasured", "common",
        "inputs", "is_small", "single",
    )  # fmt: skip

    def __init__(self, pattern: Pattern, wiring: Wiring, buffers: Buffers, *, is_small: bool) -> None:
        lanes = buffers.lanes
        self._buffers = buffers
        self._arrays: list[tuple[int, Array]] = []
        self.is_small = is_small
        self.common: dict[str, Any] | None = None  # what is the same in each submission that has this kit
        (launch,) = pattern.launches
        blocks: dict[int, Block] = {}
        handles: dict[int, Any] = {}
        sizes = {array.cell: array.room for array in pattern.arrays}
        sizes |= {cell: pattern.room_of(cell, buffers) for cell in launch.made}
        for cell, nbytes in sizes.items():
            if is_small and (lanes.shares_memory or cell not in launch.made):
                blocks[cell] = buffers.blocks.take(nbytes)
            if lanes.shares_memory:
                handles[cell] = blocks[cell].handle
            else:
                array = buffers.take_array(nbytes)
                self._arrays.append((nbytes, array))
                handles[cell] = array.handle
        self.inputs = [(array.name, array.cell, blocks.get(array.cell)) for array in pattern.arrays]
        up = {array.cell: array.nbytes if array.borrowed else array.room for array in pattern.arrays}
        uploads = [Transfer(handles[cell], up.get(cell, sizes[cell]), blocks.get(cell)) for cell in blocks or up]
        # What comes back: the memory it is in, and what is made of it.
        self._results: list[tuple[str, np.ndarray[Any, Any], tuple[int, ...], np.dtype[Any]]] = []
        for name, cell in wiring.plan.returns:
            if is_small:
                if cell not in blocks:
                    blocks[cell] = buffers.blocks.take(sizes[cell])
                shape, dtype = pattern.shapes[cell]
                self._results.append((name, blocks[cell].host[: math.prod(shape) * dtype.itemsize], shape, dtype))
        returned = blocks if lanes.shares_memory else [cell for _, cell in wiring.plan.returns]
        downloads = [Transfer(handles[cell], sizes[cell], blocks.get(cell)) for cell in returned]
        self._blocks = list(blocks.values())
        self.single = lanes.single or pattern.moved_bytes <= buffers.one_lane_bytes
        prepared = wiring.bindings[0].prepare(launch, handles, lanes)
        copied = [(array.dtype, array.nbytes) for array in pattern.arrays]
        copied += [(dtype, origin.nbytes) for _, origin, _, dtype in self._results]
        self._fast_copy = buffers.copier.fast_copy(copied)
        self._pattern = pattern
        self._send = lanes.bind_batch(uploads, prepared, downloads, single=self.single)
        self._send_unmeasured: BoundBatch | None = None
        if is_small and lanes.timed and lanes.marks_are_dear:
            self._send_unmeasured = lanes.bind_batch(uploads, prepared, downloads, single=self.single, measured=False)

    def fill(self, batch: Mapping[str, Any]) -> None:
        """Copy the host arrays of a small batch."""
        copy = self._fast_copy
        for name, _, block in self.inputs:
            assert block is not None
            if copy is not None:
                copy(block.host, batch[name], 0, False)
            else:
                self._buffers.fill(block, batch[name])

    def send(self, submission: Submission) -> None:
        """Enqueue a batch that was staged."""
        if self.is_small:
            send = self._send
            if self._send_unmeasured is not None and not self._pattern.stage_times.is_due():
                submission.measured, send = False, self._send_unmeasured
            send(submission.marks, submission.held)
            return
        blocks, borrowed = submission.blocks, submission.borrowed
        origins = [blocks[cell] if cell in blocks else borrowed[cell] for _, cell, _ in self.inputs]
        targets = []
        for result in submission.results:
            result.block = self._buffers.blocks.take(self._buffers.room_for(result.nbytes))
            targets.append(result.block)
        self._send(submission.marks, submission.held, origins, targets)

    def results(self) -> dict[str, Any]:
        """Copies of the results of a small batch that has arrived."""
        copy = self._fast_copy
        made: dict[str, Any] = {}
        for name, origin, shape, dtype in self._results:
            made[name] = array = np.empty(shape, dtype)
            if copy is not None:
                copy(array, origin, 0, False)
            else:
                self._buffers.copier.copy_back(array, origin)
        return made

    def release(self) -> None:
        """Give the memory back: no batch is like these any more."""
        for nbytes, array in self._arrays:
            self._buffers.give_array(nbytes, array)
        for block in self._blocks:
            self._buffers.blocks.give(block.nbytes, block)
        self._arrays, self._blocks = [], []
