"""Upload, compute and download as three orders of work: what the executor moves batches on.

`device.open_lanes()` gives them. The classes here work on any device: one lane under three names, on the device's own
queue, so that order comes by itself. A device with several queues puts one behind each lane.

Batches wait in *blocks*: host memory that the device copies from and to directly, or, where host and device have the same
memory, that the kernel itself works on. Lane calls return at once where the driver can do that. Hold what a call returns
until a later mark of that lane has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .synchronization import Fence, Queue

if TYPE_CHECKING:
    from .base import Device

_MEASURE_EVERY_SECONDS = 10.0


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


class Transfer(NamedTuple):
    """A copy of a bound batch; without a block, that is told at each call."""

    handle: Any
    nbytes: int
    block: Block | None = None


class Mark(Fence):
    """A point in a lane's work that knows when it was passed: here, when the device's fence was first seen done."""

    waits_asleep = False  # `wait` takes no time from the device, and returns as soon as it has passed
    is_polled_in_c = False  # `passes_before` takes neither the interpreter's lock nor anything else that others need
    stood_still = False  # the thread did, in the last `passes_before`: it shares its core

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self.seen = time.perf_counter() if fence.done else 0.0  # by the host's clock; 0 until it has passed

    @property
    def done(self) -> bool:
        if not self.seen and self._fence.done:
            self.seen = time.perf_counter()
        return bool(self.seen)

    def passes_before(self, deadline: float) -> bool:
        """Look again and again until it has passed; False at the deadline, by `time.perf_counter`.

        Also False where the thread stood still before.
        """
        while not self.done:
            if time.perf_counter() >= deadline:
                return False
        return True


class DeviceClock:
    """How far the host's clock is ahead of the device's; `read` returns the device's time now, in seconds."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read
        self._measure()

    def _measure(self) -> None:
        tries = []
        for _ in range(5):
            before = time.perf_counter()
            told = self._read()
            after = time.perf_counter()
            tries.append((after - before, (before + after) / 2 - told))
        self.offset = min(tries)[1]  # the shortest try is the most exact
        self._measured = time.perf_counter()

    def keep_exact(self) -> None:
        """Measure again if the last measurement is old: the clocks drift apart."""
        if time.perf_counter() - self._measured > _MEASURE_EVERY_SECONDS:
            self._measure()


class Lane:
    """One order of work."""

    queue: Queue | None = None  # for `kernel.prepare`; None is the device's own

    def __init__(self, device: Device) -> None:
        self.device = device

    def upload(self, handle: Any, block: Block) -> Any:
        """Copy a block to device memory; a block that is device memory is handed over to the device."""
        return self.upload_from(handle, block.host)

    def upload_from(self, handle: Any, host: np.ndarray[Any, Any]) -> Any:
        """Copy from any host array, which the caller leaves alone meanwhile."""
        self.device.upload(handle, host)

    def download(self, handle: Any, block: Block) -> Any:
        """Copy device memory to a block; a block that is device memory is handed back to the host."""
        self.device.download(handle, block.host)

    def copy(self, target: Any, origin: Any, nbytes: int) -> Any:
        """Copy on the device."""
        self.device.copy(target, origin, nbytes)

    def clear(self, handle: Any, nbytes: int) -> Any:
        """Fill device memory with zeros."""
        self.device.upload(handle, np.zeros(nbytes, "u1"))

    def wait_for(self, mark: Fence) -> None:
        """Work given to this lane from now on starts after the mark; on one queue it does so by itself."""

    def mark(self) -> Mark:
        """A point after all work given to this lane so far."""
        return Mark(self.device.fence())

    def launch_and_mark(self, launch: Callable[[], None]) -> Mark:
        """Launch on this lane, and a point behind that; a driver may tell the end of the launch itself."""
        launch()
        return self.mark()

    def point(self) -> Mark:
        """The same where nobody asks when it was passed, which may cost less."""
        return self.mark()

    def flush(self) -> None:
        """Have the driver begin."""


class BoundBatch:
    """The uploads, the launch and the downloads of a batch, bound once and enqueued at each call.

    With `single` all of it goes to the compute lane. Used by one thread at a time, and called again only when what it
    enqueued before is done.
    """

    def __init__(
        self,
        lanes: Lanes,
        uploads: Sequence[Transfer],
        launch: Callable[[], None],
        downloads: Sequence[Transfer],
        single: bool,
        measured: bool = True,
    ) -> None:
        self.single = single
        self.lanes = (lanes.compute,) * 3 if single else (lanes.upload, lanes.compute, lanes.download)
        self.uploads = uploads
        self.launch = launch
        self.downloads = downloads
        self._shares_memory = lanes.shares_memory
        self._computes_at_once = lanes.computes_at_once
        self._ends_with_launch = lanes.ends_with_launch
        # The ends of upload and kernel: where nothing is moved, there is only one end.
        self.marked = not single or (measured and lanes.timed and not lanes.shares_memory)

    def __call__(
        self, marks: list[Any], held: list[Any], origins: Sequence[Any] = (), targets: Sequence[Block] = ()
    ) -> None:
        """Enqueue it. Appends its marks, and what is to be held until the last of them has passed.

        `origins` are the blocks or arrays of the uploads that have no block of their own, and `targets` those of the downloads.
        """
        upload, compute, download = self.lanes
        if self._computes_at_once or self._ends_with_launch:
            marks.append(compute.launch_and_mark(self.launch))
            if self._ends_with_launch:
                compute.flush()
            return
        given, taken = iter(origins), iter(targets)
        with compute.device.exclusive():
            for one in self.uploads:
                origin: Any = next(given) if one.block is None else one.block
                copy = upload.upload if isinstance(origin, Block) else upload.upload_from
                held.append(copy(one.handle, origin))
            if self.marked:
                marks.append(upload.mark())
            if not self.single:
                upload.flush()
                compute.wait_for(marks[-1])
            self.launch()
            if self.marked:
                marks.append(compute.mark())
            if not self.single:
                compute.flush()
                download.wait_for(marks[-1])
            for one in self.downloads:
                held.append(download.download(one.handle, next(taken) if one.block is None else one.block))
            marks.append(download.mark())
            download.flush()
            if self._shares_memory:
                _ = marks[-1].done  # software OpenGL has computed by now; asked here, nobody needs its context for that


class Lanes:
    """Upload, compute, download; `timed` asks for marks that tell when they were passed."""

    upload: Lane
    compute: Lane
    download: Lane
    shares_memory = False  # blocks are device memory, and filling one is the upload
    computes_at_once = (
        False  # on the blocks and inside the calls: when a batch was sent it is done, and nothing overlaps
    )
    ends_with_launch = False  # on the blocks, which need no call before or after: when the kernel is done, the batch is
    marks_are_dear = False  # one that tells its time costs about as much as all the rest of a small batch
    small_batches_ahead: int | None = None  # how many keep the device busy; None: as many as of large ones
    reuses_memory = True  # a batch gets memory that another one had, with anything in it

    def __init__(self, device: Device, timed: bool = True) -> None:
        self.device = device
        self.timed = timed
        self.open_lanes()

    def open_lanes(self) -> None:
        """Set `upload`, `compute` and `download`."""
        self.upload = self.compute = self.download = Lane(self.device)

    @property
    def single(self) -> bool:
        """Whether the three are one queue, so that nothing has to wait for anything."""
        return self.upload is self.download

    @property
    def all(self) -> tuple[Lane, ...]:
        """Every lane there is."""
        return (self.upload,) if self.single else (self.upload, self.compute, self.download)

    def block(self, nbytes: int) -> Block:
        """A new block."""
        return Block(self.device.pinned_empty(nbytes, "u1"))

    def copies_directly(self, host: np.ndarray[Any, Any], *, page_lock: bool) -> bool:
        """Whether uploading from this very array takes the device no longer than from a block, and no core of the host.

        With `page_lock` it may be made so.
        """
        return False

    def bind_batch(
        self,
        uploads: Sequence[Transfer],
        launch: Callable[[], None],
        downloads: Sequence[Transfer],
        *,
        single: bool,
        measured: bool = True,
    ) -> BoundBatch:
        """A batch whose handles and launch are always the same; on the compute lane alone with `single`.

        One that is not `measured` has one mark, at its end, and nobody asks for its time.
        """
        return BoundBatch(self, uploads, launch, downloads, single or self.single, measured)

    def times(self, marks: Sequence[Any]) -> list[float]:
        """When marks that have passed were passed, in seconds of `time.perf_counter`."""
        return [mark.seen if mark.done else 0.0 for mark in marks]

    def close(self) -> None:
        """Give the queues back. All work given to them is done."""
