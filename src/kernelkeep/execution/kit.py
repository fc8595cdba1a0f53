"""The memory and the bound launch of small batches that are alike: nothing is allocated, placed or bound for the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..devices.array import Array
    from ..devices.lanes import Block, Lane, Lanes
    from .binding import Wiring
    from .buffers import Buffers
    from .pattern import Pattern


class Kit:
    """What one batch of a pattern needs. It is used again when the batch is done, and at most one batch has it at a time."""

    __slots__ = ("_arrays", "_blocks", "_buffers", "_downloads", "_pattern", "_results", "_uploads", "inputs", "launch")

    def __init__(self, pattern: Pattern, wiring: Wiring, buffers: Buffers, lanes: Lanes) -> None:
        self._pattern = pattern
        self._buffers = buffers
        self._arrays: list[tuple[int, Array]] = []
        (launch,) = pattern.launches
        blocks: dict[int, Block] = {}
        handles: dict[int, Any] = {}
        sizes = {array.cell: array.room for array in pattern.arrays}
        sizes |= {cell: pattern.room_of(cell, buffers) for cell in launch.made}
        for cell, nbytes in sizes.items():
            if lanes.shares_memory or cell not in launch.made:
                blocks[cell] = buffers.blocks.take(nbytes)
            if lanes.shares_memory:
                handles[cell] = blocks[cell].handle
            else:
                array = buffers.take_array(nbytes)
                self._arrays.append((nbytes, array))
                handles[cell] = array.handle
        self.inputs = [(array.name, blocks[array.cell]) for array in pattern.arrays]
        self._uploads = [(handles[cell], block) for cell, block in blocks.items()]
        self._results: list[tuple[str, Block, tuple[int, ...], np.dtype[Any]]] = []
        for name, cell in wiring.plan.returns:
            if cell not in blocks:
                blocks[cell] = buffers.blocks.take(sizes[cell])
            self._results.append((name, blocks[cell], *pattern.shapes[cell]))
        returned = blocks if lanes.shares_memory else [cell for _, cell in wiring.plan.returns]
        self._downloads = [(handles[cell], blocks[cell]) for cell in returned]
        self._blocks = list(blocks.values())
        self.launch = wiring.bindings[0].prepare(launch, handles, lanes)

    def upload(self, lane: Lane, held: list[Any]) -> None:
        """Enqueue the uploads."""
        for handle, block in self._uploads:
            held.append(lane.upload(handle, block))

    def download(self, lane: Lane, held: list[Any]) -> None:
        """Enqueue the downloads."""
        for handle, block in self._downloads:
            held.append(lane.download(handle, block))

    def results(self) -> dict[str, Any]:
        """Copies of the results of a batch that has arrived."""
        made: dict[str, Any] = {}
        for name, block, shape, dtype in self._results:
            made[name] = array = np.empty(shape, dtype)
            self._buffers.copier.copy_back(array, block.host)
        return made

    def give_back(self) -> None:
        """The batch is done: the next one may have it."""
        self._pattern.keep_kit(self)

    def release(self) -> None:
        """Give the memory back: no batch is like these any more."""
        for nbytes, array in self._arrays:
            self._buffers.give_array(nbytes, array)
        for block in self._blocks:
            self._buffers.blocks.give(block.nbytes, block)
        self._arrays, self._blocks = [], []
