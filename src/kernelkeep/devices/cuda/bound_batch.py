"""A batch whose driver calls are all bound: two calls into C and the launch between them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import settings
from ..lanes import Block, BoundBatch, Transfer
from .lanes import CudaMark

if TYPE_CHECKING:
    from .lanes import CudaLanes

_Call = tuple[int, tuple[int, ...]]
_MOST_CALLS = 16  # in `_calls.c`
_NOT_READY = 600  # what the driver says of an event that has not passed


class _KeptMark(CudaMark):
    """A mark whose event is recorded again for each batch, by the batch itself."""

    is_polled_in_c = True

    def __init__(self, lanes: CudaLanes, timed: bool) -> None:
        self._device = lanes.device
        self._events = self._device.timing_events if timed else self._device.events
        self.anchor = lanes.anchor
        self.event = self._events.take()
        native = native_calls()
        assert native is not None
        self._query, self._poll, self._address = native.addresses["cuEventQuery"], native.poll, int(self.event)

    def passes_before(self, deadline: float) -> bool:
        status, self.stood_still = self._poll(self._query, self._address, _NOT_READY, deadline - time.perf_counter())
        return status == 0 or (status != _NOT_READY and self.done)  # `done` raises, and says what went wrong


class NativeBatch(BoundBatch):
    """The calls before the launch and those after it, each as one call into C."""

    def __init__(
        self,
        lanes: CudaLanes,
        uploads: Sequence[Transfer],
        launch: Callable[[], None],
        downloads: Sequence[Transfer],
        single: bool,
        measured: bool = True,
    ) -> None:
        super().__init__(lanes, uploads, launch, downloads, single, measured)
        native = native_calls()
        assert native is not None
        calls, addresses = native.calls, native.addresses
        self._lanes = lanes
        self._device = lanes.device
        up, compute, down = (int(lane.queue.cu_stream) for lane in self.lanes)  # type: ignore[union-attr]
        self._marks = [_KeptMark(lanes, lanes.timed and measured) for _ in range(3 if self.marked else 1)]
        to_device, to_host = addresses["cuMemcpyHtoDAsync_v2"], addresses["cuMemcpyDtoHAsync_v2"]
        record, wait = addresses["cuEventRecord"], addresses["cuStreamWaitEvent"]
        before: list[_Call] = [(to_device, (int(one.handle), _address(one), one.nbytes, up)) for one in uploads]
        after: list[_Call] = [(to_host, (_address(one), int(one.handle), one.nbytes, down)) for one in downloads]
        if self.marked:
            uploaded, computed = (int(mark.event) for mark in self._marks[:2])
            before.append((record, (uploaded, up)))
            if single:
                after.insert(0, (record, (computed, compute)))
            else:
                before.append((wait, (compute, uploaded, 0)))
                after[:0] = [(record, (computed, compute)), (wait, (down, computed, 0))]
        # What is told at each call: the number of the call in C.
        first = len(after) - len(downloads)
        after.append((record, (int(self._marks[-1].event), down)))
        self._origins = [index for index, one in enumerate(uploads) if one.block is None]
        self._targets = [first + index for index, one in enumerate(downloads) if one.block is None]
        self._before, self._after = calls(), calls()
        self._before.bind_calls(tuple(before))
        self._after.bind_calls(tuple(after))

    def __call__(
        self, marks: list[Any], held: list[Any], origins: Sequence[Any] = (), targets: Sequence[Block] = ()
    ) -> None:
        anchor = self._lanes.anchor
        for mark in self._marks:
            mark.anchor = anchor
        for index, origin in zip(self._origins, origins, strict=True):
            address = origin.address if isinstance(origin, Block) else origin.__array_interface__["data"][0]
            self._before.set_argument(index, 1, address)
        for index, target in zip(self._targets, targets, strict=True):
            self._after.set_argument(index, 0, target.address)
        if (failed := self._before.run(0)) is not None:
            self._go_on(self._before, failed)
        self.launch()
        if (failed := self._after.run(0)) is not None:
            self._go_on(self._after, failed)
        marks += self._marks

    def _go_on(self, calls: Any, failed: tuple[int, int]) -> None:
        """Go on with the call that failed, with our context current: the thread may have another one."""
        with self._device.current:
            again = calls.run(failed[0])
        if again is not None:
            raise self._device.translated(self._device.driver.CUresult(again[1]), "copying a batch")


class _Native(NamedTuple):
    calls: Any  # the class in C
    poll: Callable[[int, int, int, float], tuple[int, bool]]
    addresses: dict[str, int]  # of the driver's functions


@cache
def native_calls() -> _Native | None:
    """What is done in C; None where the module was not built."""
    if not settings.native():
        return None
    try:
        from ..._calls import BoundCalls, poll

        driver = ctypes.CDLL("libcuda.so.1")
        names = ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuEventRecord", "cuStreamWaitEvent", "cuEventQuery")
        addresses = {name: ctypes.cast(getattr(driver, name), ctypes.c_void_p).value or 0 for name in names}
        return _Native(BoundCalls, poll, addresses)
    except (ImportError, OSError, AttributeError):
        return None


def _address(transfer: Transfer) -> int:
    return 0 if transfer.block is None else transfer.block.address


def fits(transfers: Sequence[Transfer]) -> bool:
    """Whether so many copies can be bound."""
    return len(transfers) <= _MOST_CALLS - 3
