"""The device's context on a thread, and what the garbage collector leaves for the next call.

A thread may have another context current: another library's, another device's, or none. Ours is pushed for the length of a
call and popped again, so the thread finds everything as it left it. (Launches and copies name a stream and need no context
with current drivers; creating and allocating do.)

Finalisers run at any moment in any thread. They make no driver call: they note what is to be given back, and the next call
that allocates, synchronises or closes does it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

__all__ = ["Current", "Discarded", "Events"]


class Current:
    """`with current:` has the device's context current in this thread. Several threads may be in it; it may be nested."""

    __slots__ = ("_context", "_not_pushed", "_pop", "_push", "_success")

    def __init__(self, driver: Any, context: Any) -> None:
        self._push, self._pop, self._context = driver.cuCtxPushCurrent, driver.cuCtxPopCurrent, context
        self._success = driver.CUresult.CUDA_SUCCESS
        self._not_pushed: list[int] = []  # threads, once for each time

    def __enter__(self) -> None:
        if self._push(self._context)[0] is not self._success:  # it was destroyed: the calls in the block will say so
            self._not_pushed.append(threading.get_ident())

    def __exit__(self, *exc: object) -> None:
        if self._not_pushed and (this_thread := threading.get_ident()) in self._not_pushed:
            self._not_pushed.remove(this_thread)  # popping would take somebody else's context
            return
        self._pop()


class Discarded:
    """Calls that finalisers leave for later."""

    _of: ClassVar[dict[int, Discarded]] = {}

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()

    @classmethod
    def of(cls, index: int) -> Discarded:
        """Those of one GPU, whoever opened it: what a forgotten device left, the next one gives back."""
        return cls._of.setdefault(index, cls())

    def add(self, function: Callable[..., Any], *args: Any) -> None:
        """Note a call. For finalisers: nothing here waits or takes a lock."""
        self._calls.append((function, args))

    def clear(self) -> None:
        """Make the calls. The device's context must be current."""
        while self._calls:
            try:
                function, args = self._calls.popleft()
            except IndexError:  # another thread was quicker
                return
            function(*args)


class Events:
    """Events that are used again; taking one back is no driver call, so a finaliser may do it."""

    def __init__(self, device: Any, flags: Any) -> None:
        self._device = device
        self._flags = flags
        self._free: deque[Any] = deque()

    def take(self) -> Any:
        """An event to record."""
        try:
            return self._free.popleft()
        except IndexError:
            with self._device.current:
                return self._device.call(self._device.driver.cuEventCreate, self._flags)

    def give(self, event: Any) -> None:
        """An event that nobody waits for any more on the host; streams that wait for it have noted that themselves."""
        self._free.append(event)

    def close(self) -> None:
        """Destroy those that are free."""
        while self._free:
            self._device.driver.cuEventDestroy(self._free.popleft())
