"""Batches that are alike: what was checked and worked out for one holds for the next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .kit import Kit
from .stage_times import StageTimes

if TYPE_CHECKING:
    from .binding import Wiring
    from .buffers import Buffers
    from .job import Job
    from .pipeline import Pipeline
    from .submission import Launch, Shape, Submission

_IMMUTABLE = (int, float, complex, bytes, np.generic)  # an object of these is the value that was checked before
_MISSING = object()
_BATCHES_BEFORE_KITS = 4
LENT_BYTES = 1 << 18  # smaller results are copied, which is faster than allocating page-locked memory again


class HostArray(NamedTuple):
    """A host array of a batch: any other that is like it goes to the same cell."""

    name: str
    cell: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    room: int  # how many bytes its block has
    borrowed: bool


class Pattern:
    """A batch of host arrays and scalars for one job, without the contents of the arrays.

    The next batch fits if its scalars are the very same objects and its arrays have the same shapes and dtypes.
    """

    # No job: the pattern is kept as long as the job lives.
    def __init__(
        self,
        job: Job,
        batch: Mapping[str, Any],
        arrays: list[HostArray],
        scalars: list[tuple[str, Any]],
        of: Submission,
    ) -> None:
        self._grid, self._outputs, self._copy = job.grid, job.outputs, job.copy
        self._names = len(batch)
        self.arrays = arrays
        self.scalars = scalars
        self.launches: list[Launch] = of.launches
        self.job_names = of.job_names
        self.shapes: dict[int, Shape] = of.shapes
        self.uploaded_bytes = of.uploaded_bytes
        self.moved_bytes = of.moved_bytes
        self._results = [result.nbytes for result in of.results]
        self._size = ""  # "small", "large" or "none", once it is known
        self._kits: list[Kit] = []
        self._batches = 0
        self._retired = False
        self.stage_times = StageTimes()

    def fits(self, work: Job | Pipeline, batch: Mapping[str, Any]) -> bool:
        """Whether a batch is like this one. `work` is the job that this one was for."""
        job = work.jobs[0]
        if job.grid is not self._grid or job.outputs is not self._outputs or job.copy is not self._copy:
            return False
        if len(batch) != self._names:
            return False
        for name, known in self.scalars:
            if batch.get(name, _MISSING) is not known:
                return False
        for array in self.arrays:
            value = batch.get(array.name)
            if (
                value.__class__ is not np.ndarray
                or value.shape != array.shape
                or value.dtype != array.dtype
                or not value.flags.c_contiguous
            ):
                return False
        return True

    def room_of(self, cell: int, buffers: Buffers) -> int:
        """How many bytes the memory of a cell has."""
        shape, dtype = self.shapes[cell]
        return buffers.room_for(math.prod(shape) * dtype.itemsize)

    # --- kits

    def take_kit(self, wiring: Wiring, buffers: Buffers, *, size: str) -> Kit | None:
        """Memory and launch for a batch of this size; None before a few batches have shown that they are alike.

        Small batches get theirs when they are staged, large ones when they are sent: device memory is for as many as are
        on the device.
        """
        self._size = self._size or self._find_size(buffers)
        if size != self._size:
            return None
        try:
            return self._kits.pop()
        except IndexError:
            pass
        self._batches += 1
        if self._batches < _BATCHES_BEFORE_KITS:
            return None
        buffers.patterns.add(self)
        return Kit(self, wiring, buffers, is_small=size == "small")

    def idle_kit(self) -> Kit | None:
        """The memory of a small batch, if some is idle."""
        try:
            return self._kits.pop() if self._size == "small" else None
        except IndexError:
            return None

    def _find_size(self, buffers: Buffers) -> str:
        lanes, borrowed = buffers.lanes, [array.nbytes for array in self.arrays if array.borrowed]
        if self.launches[0].cleared or not lanes.reuses_memory or 0 in borrowed:
            return "none"  # what starts as zeros is cleared for each batch
        lent = any(nbytes >= LENT_BYTES for nbytes in self._results)
        if not borrowed and not lent and (lanes.single or self.moved_bytes <= buffers.one_lane_bytes):
            return "small"
        return "none" if lanes.shares_memory else "large"

    def keep_kit(self, kit: Kit) -> None:
        """A batch is done with a kit."""
        self._kits.append(kit)
        if self._retired:
            self.retire()

    def retire(self) -> None:
        """Batches are not like this any more: give the memory back, also what batches under way still have."""
        self._retired = True
        self.release_idle()

    def release_idle(self) -> None:
        """Give the memory back that no batch has."""
        while self._kits:
            try:
                kit = self._kits.pop()
            except IndexError:
                return  # another thread did it
            kit.release()


def pattern_of(submission: Submission, batch: Mapping[str, Any], buffers: Buffers) -> Pattern | None:
    """What later batches may repeat; None where each batch is to be looked at, as for functions of the batch."""
    (job, *others) = submission.work.jobs
    (launch, *_) = submission.launches
    if others or callable(job.grid) or any(callable(wanted) for wanted in job.outputs.values()):
        return None
    arrays, scalars = [], []
    cells = {param.name: cell for param, cell in zip(launch.step.params, launch.step.cells, strict=True)}
    for name, value in batch.items():
        cell = cells.get(name)
        if cell is None:
            return None
        if cell in submission.blocks or cell in submission.borrowed:
            if value.__class__ is not np.ndarray or not value.flags.c_contiguous or not value.dtype.isnative:
                return None  # it was converted, and the next one is, too
            block = submission.blocks.get(cell)
            room = buffers.room_for(value.nbytes)
            arrays.append(HostArray(name, cell, value.shape, value.dtype, value.nbytes, room, block is None))
        elif isinstance(value, _IMMUTABLE):
            scalars.append((name, value))
        else:
            return None
    return Pattern(job, batch, arrays, scalars, submission)
