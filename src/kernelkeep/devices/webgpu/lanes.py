"""Upload, compute and download on WebGPU: one queue, and downloads that arrive in buffers which the host can read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..lanes import Block, BoundBatch, Lane, Lanes, Mark
from ..lanes import Transfer as Copy
from .staging import Transfer

if TYPE_CHECKING:
    from .device import WebGPUDevice
    from .timestamps import Stamp


class WebGPUMark(Mark):
    """A point in the queue. When it is seen to have passed, the downloads before it are in their blocks."""

    stamp: Stamp  # where its time is, on timed lanes

    def __init__(
        self, device: WebGPUDevice, transfers: list[tuple[Transfer, int]], stamp: Stamp | None, made: float
    ) -> None:
        """A point behind all that was submitted, which was begun when it was `made`. The caller has the lock."""
        self._context = device.context
        self._transfers = transfers
        self._finished = False
        self.made = made
        self.seen = 0.0
        if stamp is not None:
            self.stamp = stamp
        self._point = device.context.note_point(self._pass)

    def _pass(self) -> None:
        self.seen = time.perf_counter()

    @property
    def done(self) -> bool:
        if not self._finished:
            if not self._context.is_passed(self._point) or not all(one.arrived for one, _ in self._transfers):
                return False
            for transfer, address in self._transfers:
                transfer.finish(address)
            self._transfers.clear()
            self._finished = True
        return True

    def wait(self, timeout_seconds: float | None = None) -> bool:
        return self._context.wait_until(lambda: self.done, timeout_seconds)


class WebGPULane(Lane):
    """The device's one queue."""

    device: WebGPUDevice

    def __init__(self, lanes: WebGPULanes) -> None:
        super().__init__(lanes.device)
        self._timed = lanes.timed
        self._transfers: list[tuple[Transfer, int]] = []  # since the last mark

    def download(self, handle: int, block: Block) -> Any:
        with self.device.context.lock:
            self.device.submit_waiting()
            transfer = self.device.copies.begin_download(self.device.memory[handle], block.nbytes)
            self._transfers.append((transfer, block.address))
        return block

    def clear(self, handle: int, nbytes: int) -> Any:
        self.device.clear(handle, nbytes)

    def mark(self) -> WebGPUMark:
        return self._mark(self._timed)

    def point(self) -> WebGPUMark:
        return self._mark(timed=False)

    def _mark(self, timed: bool) -> WebGPUMark:
        with self.device.context.lock:
            transfers, self._transfers = self._transfers, []
            made, stamp = time.perf_counter(), None
            if timed:
                stamp = self.device.timestamps.submit(bring=bool(transfers))
            else:
                self.device.submit_waiting()
            return WebGPUMark(self.device, transfers, stamp, made)

    def flush(self) -> None:
        self.device.submit()


class WebGPULanes(Lanes):
    """One lane under three names. Without timestamps its marks know when the host saw them pass, not when they passed."""

    device: WebGPUDevice

    def __init__(self, device: WebGPUDevice, timed: bool) -> None:
        super().__init__(device, timed and device.capabilities.timestamps)
        self._by_host = timed and not self.timed

    def open_lanes(self) -> None:
        self.upload = self.compute = self.download = WebGPULane(self)

    def bind_batch(
        self,
        uploads: Sequence[Copy],
        launch: Callable[[], None],
        downloads: Sequence[Copy],
        *,
        single: bool,
        measured: bool = True,
    ) -> BoundBatch:
        from .bound_batch import WebGPUBatch
        from .prepared import WebGPUPrepared

        if isinstance(launch, WebGPUPrepared) and not self._by_host:
            return WebGPUBatch(self, uploads, launch, downloads)
        batch = super().bind_batch(uploads, launch, downloads, single=single, measured=measured)
        batch.marked = batch.marked or self._by_host  # each end is seen by the host, and so is a submission of its own
        return batch

    def times(self, marks: Sequence[WebGPUMark]) -> list[float]:
        return self.device.timestamps.host_times(marks) if self.timed else super().times(marks)
