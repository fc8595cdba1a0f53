"""All streams of a device: its own, those of its queues, and those of queues that were collected."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from ...weak_set import WeakSet

if TYPE_CHECKING:
    from .synchronization import CudaQueue

_HANDLES_KEPT = 256


class Streams:
    """The stream of a collected queue serves the next one, as soon as it has no work.

    None is destroyed before the device is closed: beside a kernel that never exits that would wait for it, and with ever more
    streams some would share the hardware queue of that kernel and stand still behind it.
    """

    def __init__(self, driver: Any, own: Any) -> None:
        self._driver = driver
        self._own = own
        self._free: deque[Any] = deque()
        self._handles: dict[int, Any] = {}
        self.queues: WeakSet[CudaQueue] = WeakSet()

    def handle(self, address: int) -> Any:
        """A stream as the type that the bindings convert fastest."""
        handle = self._handles.get(address)
        if handle is None:
            if len(self._handles) >= _HANDLES_KEPT:
                self._handles.clear()
            handle = self._handles[address] = self._driver.CUstream(address)
        return handle

    def _all(self) -> list[Any]:
        """Each once: to destroy one twice ends the process."""
        streams = [self._own, *(queue.cu_stream for queue in list(self.queues)), *list(self._free)]
        return list({int(stream): stream for stream in streams}.values())

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._all())

    def synchronize(self) -> None:
        """Wait for all work on all streams."""
        for stream in self._all():
            self._driver.cuStreamSynchronize(stream)

    def take(self) -> Any:
        """A stream that no queue has any more and that has no work; None if there is none."""
        for _ in range(len(self._free)):
            try:
                one = self._free.popleft()
            except IndexError:  # another thread took it
                break
            if self._driver.cuStreamQuery(one)[0] == self._driver.CUresult.CUDA_SUCCESS:
                return one
            self._free.append(one)
        return None

    def give(self, stream: Any) -> None:
        """Return the stream of a queue. For finalisers: takes no lock and never waits."""
        self._free.append(stream)

    def take_all(self) -> list[Any]:
        """All streams, to be destroyed. They have no work."""
        streams = self._all()
        self._free.clear()
        return streams
