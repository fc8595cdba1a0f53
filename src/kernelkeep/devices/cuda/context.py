"""The device's context in a thread, and driver calls that finalisers postpone.

A thread may have another context current: another library's, another device's, or none. Ours is pushed for a call and popped
after it, so the thread's own context stays as it was. (With current drivers launches and copies need no context, since they
name a stream; creating and allocating need one.)

Finalisers run at any moment in any thread and make no driver call: they add it to a list, and the next call that allocates,
synchronises or closes makes it. While a kernel that never exits runs on the GPU, the list is kept until it has ended or was
suspended (`residents.py`): most calls that give something back wait for every running kernel.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar


class Current:
    """`with current:` has the device's context current in this thread. Several threads may be in it; it may be nested."""

    __slots__ = ("_context", "_not_pushed", "_pop", "_push", "_success")

    def __init__(self, driver: Any, context: Any) -> None:
        self._push, self._pop, self._context = driver.cuCtxPushCurrent, driver.cuCtxPopCurrent, context
        self._success = driver.CUresult.CUDA_SUCCESS
        self._not_pushed: list[int] = []  # a thread appears once for each failed push

    def __enter__(self) -> None:
        if (
            self._push(self._context)[0] is not self._success
        ):  # the context was destroyed; the calls in the block will fail and say so
            self._not_pushed.append(threading.get_ident())

    def __exit__(self, *exc: object) -> None:
        if self._not_pushed and (this_thread := threading.get_ident()) in self._not_pushed:
            self._not_pushed.remove(this_thread)  # popping would remove a foreign context
            return
        self._pop()


class Discarded:
    """Driver calls that finalisers postpone, and whether calls that wait for every running kernel may be made.

    Such a call is made between `begin` and `end`. Whoever launches a kernel that never exits sets `held`, and then waits until
    `under_way` is empty.
    """

    _of: ClassVar[dict[int, Discarded]] = {}

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., Any], tuple[Any, ...], int]] = deque()
        self._sizes: deque[int] = deque()  # of the calls since `count_bytes`; negative for those that were made
        self._bytes = 0
        self._counting = threading.RLock()  # a signal's handler may allocate, too
        self.held = False  # a kernel that never exits runs
        self.under_way: list[None] = []  # one for each such call; append and pop are atomic
        self.end = self.under_way.pop  # no function of ours: Ctrl-C at its beginning would leave the grids away

    @classmethod
    def of(cls, index: int) -> Discarded:
        """The calls for one GPU, shared by all its devices: the next device makes those of a collected one."""
        return cls._of.setdefault(index, cls())

    @property
    def waiting(self) -> int:
        """How many calls are postponed."""
        return len(self._calls)

    def begin(self) -> bool:
        """Whether a call that waits for every running kernel may be made now; if so, `end` follows it."""
        try:
            self.under_way.append(None)  # before `held` is read: a grid is launched only when this is empty
        except BaseException:  # Ctrl-C right after the call: nobody would call `end`
            self.under_way.pop()
            raise
        if self.held:
            self.under_way.pop()
            return False
        return True

    def add(self, function: Callable[..., Any], *args: Any, nbytes: int = 0) -> None:
        """Postpone a call, which frees `nbytes` of device memory. For finalisers: takes no lock and never waits."""
        self._sizes.append(nbytes)
        self._calls.append((function, args, nbytes))

    def count_bytes(self) -> int:
        """How much device memory the postponed calls would free, about."""
        with self._counting:  # finalisers do not take it
            while self._sizes:
                self._bytes += self._sizes.popleft()
            return self._bytes

    def clear(self, seconds: float | None = None) -> None:
        """Make the postponed calls, unless a kernel that never exits runs. The device's context must be current.

        With `seconds`, no call begins after that time; the first one is made in any case. Those that are left when such a kernel
        is about to be launched stay postponed: the launch waits for the call that is under way.
        """
        end = None if seconds is None else time.perf_counter() + seconds
        if not self._calls or not self.begin():
            return
        try:
            while self._calls:
                try:
                    function, args, nbytes = self._calls.popleft()
                except IndexError:  # another thread took it
                    return
                self._sizes.append(-nbytes)
                function(*args)
                if self.held or (end is not None and time.perf_counter() > end):
                    return
        finally:
            self.end()


class Events:
    """A pool of events. Returning one is no driver call, so a finaliser may do it."""

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
        """Return an event that the host no longer waits for; streams that wait for it are not disturbed."""
        self._free.append(event)

    def close(self) -> None:
        """Destroy the events in the pool."""
        while self._free:
            self._device.driver.cuEventDestroy(self._free.popleft())
