"""All lanes of a ring as producers use them: which thread uses which, waiting for room, tasks spread over all of them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .argument_checks import timeout_seconds
from .future import TaskFuture, Waiting
from .lane import open_lane
from .protocol import Layout
from .task import WIDE, PreparedTask

if TYPE_CHECKING:
    from .awaiting import RoomLines

_SLICE_NS = 100_000_000
_ROOM_SPIN_NS = 20_000
_DRAIN_SPIN_NS = 50_000


class Lanes:
    """The lanes of one ring. A thread keeps the lane that it got first, so its tasks run in order."""

    def __init__(self, layout: Layout, ring: Any, waiting: Waiting, *, emulated: bool) -> None:
        self.all = [
            open_lane(layout, number, ring, TaskFuture, context=waiting, emulated=emulated)
            for number in range(layout.lanes)
        ]
        self.local = threading.local()
        self._capacity = layout.capacity
        self._numbers = {id(lane): number for number, lane in enumerate(self.all)}
        self._turn = itertools.count()
        self._waiting = waiting
        self.lines: RoomLines | None = None  # since a coroutine found the ring full

    def of_thread(self) -> Any:
        """The lane of the thread that calls."""
        lane = getattr(self.local, "lane", None)
        if lane is None:
            lane = self.local.lane = self.all[next(self._turn) % len(self.all)]
        return lane

    def number_of(self, lane: Any) -> int:
        """Which one it is."""
        return self._numbers[id(lane)]

    def push(self, lane: Any, plan: bytes, args: tuple[Any, ...], check: Callable[[], None]) -> TaskFuture:
        """Submit a task as soon as there is room. `check` raises when there will be none."""
        while True:
            check()
            future: TaskFuture | None = lane.push(plan, args)
            if future is not None:
                return future
            self.wait_for_room(lane)

    def push_rows(self, task: PreparedTask, rows: Any, check: Callable[[], None], *, ordered: bool) -> list[TaskFuture]:
        """Submit a task for each row: all to this thread's lane, or in pieces to all of them."""
        parts: list[TaskFuture] = []
        if ordered:
            self._push_some(self.of_thread(), task, rows, 0, len(rows), check, parts)
            return parts
        piece = max(1, min(self._capacity // 2, -(-len(rows) // len(self.all))))
        for start in range(0, len(rows), piece):
            lane = self.all[next(self._turn) % len(self.all)]
            self._push_some(lane, task, rows, start, min(len(rows), start + piece), check, parts)
        return parts

    def _push_some(
        self,
        lane: Any,
        task: PreparedTask,
        rows: Any,
        start: int,
        end: int,
        check: Callable[[], None],
        parts: list[TaskFuture],
    ) -> None:
        number = task.number | (WIDE if task.whole_grid else 0)
        while start < end:
            check()
            taken, future = lane.push_many(number, rows, rows.dtype.itemsize, end, task.result_code, start)
            if taken:
                parts.append(future)
                start += taken
            else:
                self.wait_for_room(lane)

    def wait_for_room(self, lane: Any) -> None:
        """Wait until a quarter of a full ring is free: one doorbell for each freed slot would be slow."""
        has_room = lane.wait_for_room(_ROOM_SPIN_NS, _SLICE_NS, max(1, self._capacity // 4))
        if not has_room or lane.failure is not None:
            self._waiting.look(lane)  # asks the driver: not each time

    async def push_in_loop(self, lane: Any, push: Callable[[], TaskFuture | None]) -> TaskFuture:
        """What `push` returns as soon as there is room in the lane. Only the coroutine waits, not its event loop."""
        if self.lines is None:
            from .awaiting import RoomLines  # imports asyncio

            self.lines = RoomLines()
        future: TaskFuture = await self.lines.first_future(
            push,
            lambda: lane.wait_for_room(0, 0, max(1, self._capacity // 4)),
            lambda: self._waiting.look(lane),
        )
        return future

    def drain(self, timeout: float | None) -> bool:
        """Wait until every task submitted so far is done; whether that is so after `timeout` seconds."""
        limit = timeout_seconds(timeout)
        deadline = None if limit is None else time.monotonic() + limit
        for lane, head in [(lane, lane.submitted) for lane in self.all]:
            while not lane.wait(head, _DRAIN_SPIN_NS, _slice(deadline)):
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                self._waiting.look(lane)
        return True

    def done(self) -> tuple[int, ...]:
        """How many tasks of each lane were acknowledged, ever."""
        return tuple(lane.done for lane in self.all)

    def fail(self, error: BaseException) -> None:
        """Make this the outcome of every future that is not done."""
        for lane in self.all:
            if lane.failure is None:
                lane.failure = error


def _slice(deadline: float | None) -> int:
    if deadline is None:
        return _SLICE_NS
    return max(0, min(_SLICE_NS, int((deadline - time.monotonic()) * 1e9)))
