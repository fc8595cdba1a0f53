"""Times of the device: each end of a compute pass can be given one.

A query set takes them. Pages of them come to the host together: when a page is full, with a download, or when somebody asks.
The query set is used again at once, because the queue keeps the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..lanes import DeviceClock
from .bindings import new_buffer
from .native import native
from .staging import Transfer
from .types import new

if TYPE_CHECKING:
    from .device import WebGPUDevice

_TIMESTAMP = 2  # WGPUQueryType
_UNDEFINED = 0xFFFFFFFF  # WGPU_QUERY_SET_INDEX_UNDEFINED
_QUERY_RESOLVE, _COPY_FROM = 0x200, 0x04  # WGPUBufferUsage
_PAGE = 64


class Page:
    """Timestamps that come to the host together."""

    def __init__(self, queries: Any) -> None:
        self.queries = queries
        self.count = 0
        self.transfer: Transfer | None = None  # once they are on their way
        self._ticks = np.zeros(_PAGE, "u8")

    def ticks(self) -> np.ndarray[Any, Any]:
        """The values, as the device counts. Waits until they are there."""
        assert self.transfer is not None
        self.transfer.finish(self._ticks.ctypes.data)
        return self._ticks


class Stamp(NamedTuple):
    """Where a timestamp will be found."""

    page: Page
    slot: int


class Stamped(Protocol):
    """A mark with a timestamp, and what the host knows of it: after `made`, and before `seen` unless that is 0."""

    stamp: Stamp
    made: float
    seen: float


class Timestamps:
    """The timestamps of a device, and how far the host's clock is ahead of its clock."""

    def __init__(self, device: WebGPUDevice) -> None:
        self._device = device
        lib = native().lib
        with device.context.lock:
            described = new("WGPUQuerySetDescriptor *", {"type": _TIMESTAMP, "count": _PAGE})
            self._queries = lib.wgpuDeviceCreateQuerySet(device.context.raw, described)
            self._resolved = new_buffer(device.context, 8 * _PAGE, _QUERY_RESOLVE | _COPY_FROM)
            device.context.check("opening the device's clock")
            self._period = float(lib.wgpuQueueGetTimestampPeriod(device.context.queue)) * 1e-9
        self._page = Page(self._queries)
        self._offset = DeviceClock(self._now).offset

    def _now(self) -> float:
        return self.seconds([self.submit()])[0]

    def submit(self, *, bring: bool = False) -> Stamp:
        """Submit the waiting launches with a timestamp behind them. `bring`: the page goes to the host as well."""
        self._device.check_open()
        with self._device.context.lock:
            page = self._page
            stamp = Stamp(page, page.count)
            page.count += 1
            if bring or page.count == _PAGE:
                self._bring(stamp)
            else:
                self._device.submit_waiting(stamp)
            return stamp

    def _bring(self, stamp: Stamp | None) -> None:
        transfer, resolve = self.end_page()
        self._device.submit_waiting(stamp, resolve)
        transfer.begin()

    def take(self, count: int) -> list[Stamp]:
        """Places for so many timestamps, which the caller encodes. The caller has the lock."""
        self._device.check_open()
        if self._page.count + count > _PAGE:
            self._bring(None)
        page = self._page
        page.count += count
        return [Stamp(page, slot) for slot in range(page.count - count, page.count)]

    def end_page(self) -> tuple[Transfer, Callable[[Any], None]]:
        """The transfer of the page, which the caller begins after it has submitted what the function encodes."""
        lib = native().lib
        page, self._page = self._page, Page(self._queries)
        nbytes = 8 * page.count
        transfer = page.transfer = Transfer(self._device.context, self._device.copies.staging, nbytes)

        def resolve(encoder: Any) -> None:
            lib.wgpuCommandEncoderResolveQuerySet(encoder, self._queries, 0, page.count, self._resolved, 0)
            lib.wgpuCommandEncoderCopyBufferToBuffer(encoder, self._resolved, 0, transfer.buffer, 0, nbytes)

        return transfer, resolve

    def seconds(self, stamps: Sequence[Stamp]) -> list[float]:
        """The times by the device's clock. Waits for them."""
        self._device.check_open()
        with self._device.context.lock:
            if any(stamp.page.transfer is None for stamp in stamps):
                self._bring(None)
        return [int(stamp.page.ticks()[stamp.slot]) * self._period for stamp in stamps]

    def host_times(self, marks: Sequence[Stamped]) -> list[float]:
        """When marks were passed, by the host's clock. Waits for them.

        The clocks drift apart. Measuring that again would wait for the queue; but a mark is passed after it was made, and
        before it is seen.
        """
        times = self.seconds([mark.stamp for mark in marks])
        latest = min(
            (mark.seen - told for mark, told in zip(marks, times, strict=True) if mark.seen), default=self._offset
        )
        earliest = max((mark.made - told for mark, told in zip(marks, times, strict=True)), default=self._offset)
        self._offset = max(min(self._offset, latest), earliest)
        return [told + self._offset for told in times]

    def close(self) -> None:
        """Release what the driver keeps for it. The caller has the lock."""
        lib = native().lib
        lib.wgpuQuerySetRelease(self._queries)
        lib.wgpuBufferRelease(self._resolved)


def encode_stamp(encoder: Any, stamp: Stamp) -> None:
    """A timestamp after all that was encoded before: that of a compute pass with nothing in it."""
    lib = native().lib
    described, _memory = describe_pass(stamp)
    begun = lib.wgpuCommandEncoderBeginComputePass(encoder, described)
    lib.wgpuComputePassEncoderEnd(begun)
    lib.wgpuComputePassEncoderRelease(begun)


def describe_pass(stamp: Stamp, begin: Stamp | None = None) -> tuple[Any, Any]:
    """The descriptor of a compute pass whose end, and maybe whose beginning, gets a timestamp, and the memory to be kept alive
    while it is used."""
    writes = new("WGPUPassTimestampWrites *")
    writes.querySet = stamp.page.queries
    writes.beginningOfPassWriteIndex = _UNDEFINED if begin is None else begin.slot
    writes.endOfPassWriteIndex = stamp.slot
    return new("WGPUComputePassDescriptor *", {"timestampWrites": writes}), writes
