"""What coroutines wait for: a task's result, and room in a full ring. An event loop polls once for all that it awaits.

Imported by the first await, because it imports asyncio.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

LOOK_NS = 100_000_000  # how often the device is looked at
TURNS = 20  # turns of the loop before a coroutine that awaits begins to sleep
FEW = 8  # so many coroutines may look for themselves during these turns
LEAST_SLEEP, MOST_SLEEP = 50e-6, 1e-3


class LoopWaits:
    """The futures that the coroutines of one loop await. Only the first one of each queue is looked at."""

    def __init__(self) -> None:
        self._queues: dict[int, list[list[Any]]] = {}  # heaps of [place in the queue, number, future, who is woken]
        self._numbers = itertools.count()
        self._awaiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._pause = LEAST_SLEEP
        self._looked = 0

    async def wait(self, future: Any) -> None:
        """Wait until a future is done; raises what is wrong with its device."""
        self._awaiting += 1
        try:
            if self._awaiting <= FEW:
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                    if future.done():
                        return
            await self._wait_in_queue(future)
        finally:
            self._awaiting -= 1

    async def _wait_in_queue(self, future: Any) -> None:
        loop = asyncio.get_running_loop()
        entry = [future.place(), next(self._numbers), future, loop.create_future()]
        queue = self._queues.setdefault(future.queue(), [])
        heapq.heappush(queue, entry)
        if queue[0] is entry:
            if self._timer is None:
                self._looked = time.monotonic_ns()
            else:
                self._timer.cancel()
            self._pause = LEAST_SLEEP
            self._timer = loop.call_later(self._pause, self._poll, loop)
        try:
            await entry[3]
        finally:
            entry[2:] = None, None  # one that was cancelled stays in the queue for a while, and must hold nothing

    def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = time.monotonic_ns()
        look = now - self._looked > LOOK_NS
        if look:
            self._looked = now
        woken = False
        for key, queue in list(self._queues.items()):
            woken = _wake(queue, look) or woken
            if not queue:
                del self._queues[key]
        if self._queues:
            self._pause = LEAST_SLEEP if woken else min(2 * self._pause, MOST_SLEEP)
            self._timer = loop.call_later(self._pause, self._poll, loop)


def _wake(queue: list[list[Any]], look: bool) -> bool:
    """Wake those whose futures are done, or all of a queue with what is wrong with its device; whether there were any."""
    before = len(queue)
    while queue:
        _, _, future, waiter = queue[0]
        if future is not None and not future.done():
            try:
                if look:
                    future.look()
                break
            except Exception as error:
                for *_, waiter in queue:
                    if waiter is not None and not waiter.done():
                        waiter.set_exception(error)
                queue.clear()
                break
        heapq.heappop(queue)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
    return len(queue) < before


_waits: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWaits] = WeakKeyDictionary()


def loop_waits() -> LoopWaits:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _waits.get(loop)
    if found is None:
        found = _waits[loop] = LoopWaits()
    return found


class _Line:
    def __init__(self) -> None:
        self.waiting = 0
        self.lock = asyncio.Lock()  # fair: who came first gets it first


class RoomLines:
    """The coroutines that wait for room in a ring, those of each loop in the order in which they came."""

    def __init__(self) -> None:
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    async def first_future(
        self, submit: Callable[[], Any], has_room: Callable[[], bool], look: Callable[[], None]
    ) -> Any:
        """What `submit` returns once it is not None. It is tried in turn, and again when `has_room`."""
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _Line()
        if not line.waiting and (future := submit()) is not None:
            return future
        line.waiting += 1
        try:
            async with line.lock:
                while (future := submit()) is None:
                    await _wait_for_room(has_room, look)
                return future
        finally:
            line.waiting -= 1


async def _wait_for_room(has_room: Callable[[], bool], look: Callable[[], None]) -> None:
    pause, looked = LEAST_SLEEP, 0
    while not has_room():
        if time.monotonic_ns() - looked > LOOK_NS:
            look()
            looked = time.monotonic_ns()
        await asyncio.sleep(pause)
        pause = min(2 * pause, MOST_SLEEP)
