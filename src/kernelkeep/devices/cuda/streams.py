"""All streams of a device: its own, those of its queues, and those of queues that were collected."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from ...weak_set import WeakSet

if TYPE_CHECKING:
    from .synchronization import CudaQueue

_HANDLES_KEPT = 256


class Streams:
    """The stream of a collected queue is destroyed once it has no work: until then `synchronize` waits for it too."""

    def __init__(self, driver: Any, own: Any) -> None:
        self._driver = driver
        self._own = own
        self._dropped: deque[Any] = deque()
        self._dropping = threading.Lock()
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
        return [self._own, *(queue.cu_stream for queue in list(self.queues)), *self._dropped]

    def synchronize(self) -> None:
        """Wait for all work on all streams."""
        with self._dropping:
            for stream in self._all():
                self._driver.cuStreamSynchronize(stream)

    def drop(self, stream: Any) -> None:
        """Destroy the stream of a collected queue, now or once it has no work."""
        self._dropped.append(stream)
        if not self._dropping.acquire(blocking=False):
            return  # another thread waits for the streams or drops them
        try:
            for _ in range(len(self._dropped)):
                one = self._dropped.popleft()
                if self._driver.cuStreamQuery(one)[0] == self._driver.CUresult.CUDA_ERROR_NOT_READY:
                    self._dropped.append(one)
                else:
                    self._driver.cuStreamDestroy(one)
        finally:
            self._dropping.release()

    def take_all(self) -> list[Any]:
        """All streams, to be destroyed. They have no work."""
        streams = self._all()
        self._dropped.clear()
        return streams
