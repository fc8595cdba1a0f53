"""`kk.Resident`: tasks for a kernel that never exits.

    with kk.Resident(cache, tasks={"axpy": "(float a, int n) { … }"}, arrays={"x": x, "y": y}) as resident:
        resident.submit("axpy", 2.0, n).result()
        resident.submit_many("axpy", rows)
        await resident.run("axpy", 2.0, n)

A thread's tasks run one after the other, in the order of submission: they go to one block. `submit_many(…, ordered=False)`
spreads them over all blocks.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self

import numpy as np

from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..errors import ArgumentError, DeviceError, TaskSilent
from ..programs.languages import find_language
from ..programs.task_program import TaskArray
from .arguments import array_dtype, rows_of, slot_bytes, threads_of
from .diagnosis import WAY_OUT, Silence, describe
from .future import BatchFuture, TaskFuture, Waiting
from .grid import DeviceGrid
from .lane import open_lane
from .protocol import Layout
from .task import WIDE, PreparedTask, prepare
from .timeline import ResidentTimeline, clock_offset, read_timeline, save_traces

_SPINS = 2000  # looks at the ring before a block with nothing to do looks less often
_NAPS = 40  # of half a microsecond: how long it then waits between two looks, at most
_CHUNK = 256  # rows that go to one block at once, where tasks are spread
_SLICE_NS = 100_000_000


class Resident:
    """A grid that stays on the device and runs tasks as they are submitted. A context manager that stops it.

    `tasks` has a body, or more (`resident/task.py`), for each name; `arrays` the device arrays that they use by name; NumPy
    arrays are uploaded. `blocks` is how many blocks stay, by default one on each processor (SM); `sms` keeps the grid to
    that many processors. `threads` is the number of work-items in a block, 128 by default; `capacity` how many tasks of a
    block can wait, a power of two; `argument_bytes` makes room for tasks with longer arguments that are added later.
    Whoever waits for a task that takes longer than `silence_seconds` gets `TaskSilent`, which says what runs where; the
    task goes on.
    """

    def __init__(
        self,
        cache: ProgramCache,
        tasks: Mapping[str, Any],
        arrays: Mapping[str, Any] | None = None,
        *,
        blocks: int | None = None,
        sms: int | None = None,
        threads: int | None = None,
        capacity: int = 1024,
        argument_bytes: int = 0,
        timeline: int = 0,
        silence_seconds: float = 10.0,
    ) -> None:
        if not isinstance(cache, ProgramCache):
            raise ArgumentError(f"cache must be a kk.ProgramCache, got a {type(cache).__name__}")
        if not isinstance(tasks, Mapping) or not tasks:
            raise ArgumentError("tasks must be a mapping of names to bodies, with at least one")
        self.cache, self.device = cache, cache.device
        self.threads = threads_of(tasks, threads, self.device)
        self.last_pause_seconds = 0.0
        self._closed = False
        self._control = threading.RLock()  # held by what starts, pauses, changes and stops the grid
        self._local = threading.local()
        self._next_lane = itertools.count()
        self._silence = Silence(silence_seconds)
        self._failure: BaseException | None = None
        self._waiting = Waiting(self._on_silence)
        self.arrays = {name: self._array(name, one) for name, one in (arrays or {}).items()}
        self._capacity = capacity
        self._tasks = self._prepared(tasks, {})
        self._slot = slot_bytes(self._tasks.values(), argument_bytes)
        self._grid = self._new_grid(sms, timeline)
        try:
            lease = self.cache.get(self._source(self._tasks))
            self._grid.use(lease)
            count = self._grid.count_blocks(lease, blocks)
            self.layout = Layout(count, capacity, self._slot)
            self._ring = self._grid.new_ring(self.layout)
            self._grid.place(self._ring, self.layout, list(self.arrays.values()), count)
            self._grid.diagnose = self.describe
            self._set_tasks(self._tasks)
            self._lanes = [
                open_lane(
                    self.layout, number, self._ring, TaskFuture, context=self._waiting, emulated=self._grid.emulated
                )
                for number in range(count)
            ]
            self._numbers = {id(lane): number for number, lane in enumerate(self._lanes)}
            self.device.add_tenant(self)
            self._grid.start()
        except BaseException:
            self._closed = True
            self._grid.close()
            raise

    # --- what it is made of

    def _new_grid(self, sms: int | None, timeline: int) -> Any:
        return DeviceGrid(self.cache, sms=sms, timeline=timeline, spins=_SPINS, naps=_NAPS)

    def _array(self, name: str, given: Any) -> Array:
        array = given if isinstance(given, Array) else self.device.array(given)
        array_dtype(name, array)
        return array

    def _task_arrays(self) -> list[TaskArray]:
        return [TaskArray(name, array_dtype(name, one)) for name, one in self.arrays.items()]

    def _prepared(self, given: Mapping[str, Any], known: Mapping[str, PreparedTask]) -> dict[str, PreparedTask]:
        language, arrays = find_language(self.device.language), self._task_arrays()
        found = dict(known)
        for name, body in given.items():
            found[name] = prepare(name, body, len(found), arrays, self.threads, language)
        return found

    def _source(self, tasks: Mapping[str, PreparedTask]) -> Any:
        return self._grid.program_of(
            tuple(tasks.values()), self._task_arrays(), self._slot, self._capacity, self.threads
        )

    def _set_tasks(self, tasks: dict[str, PreparedTask]) -> None:
        self._tasks = tasks
        self._by_number = {task.number: task for task in tasks.values()}
        self._plans = {name: task.plan() for name, task in tasks.items()}

    @property
    def blocks(self) -> int:
        """How many blocks stay on the device."""
        return self.layout.lanes

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(self._tasks)

    # --- submitting

    def submit(self, name: str, *args: Any) -> TaskFuture:
        """Have a task run; returns at once, unless the ring of the block is full. The future has its result."""
        try:
            lane, plan = self._local.lane, self._plans[name]
        except (AttributeError, KeyError, TypeError):
            lane, plan = self._lane(), self._plan(name)
        try:
            future: TaskFuture | None = lane.push(plan, args)
        except (TypeError, OverflowError) as error:
            raise ArgumentError(f"task {name}: {error}") from None
        if future is not None and not self._closed:
            return future
        return self._submit_slowly(name, lane, plan, args, future)

    def _submit_slowly(self, name: str, lane: Any, plan: bytes, args: tuple[Any, ...], future: Any) -> TaskFuture:
        while future is None:
            self._check_open()
            self._wait_for_room(lane)
            future = lane.push(plan, args)
        self._check_open()
        found: TaskFuture = future
        return found

    def submit_many(self, name: str, rows: Any, *, ordered: bool = True) -> BatchFuture:
        """Have a task run once for each row of arguments, with one doorbell for as many as fit into the ring.

        `rows` is a NumPy record array whose fields are the arguments (`rows_dtype(name)` has them as the ring does, which
        saves a copy), an array with a column for each, or for a task without arguments a number. With `ordered=False` the
        tasks are spread over all blocks, and run in any order. The results come as one array, in the order of the rows.
        """
        self._check_open()
        task = self._task(name)
        given = rows_of(task, rows)
        number = task.number | (WIDE if task.whole_grid else 0)
        parts: list[Any] = []
        if ordered:
            self._push_all(self._lane(), number, task, given, 0, len(given), parts)
        else:
            self._spread(number, task, given, parts)
        return BatchFuture(parts)

    def rows_dtype(self, name: str) -> np.dtype[Any]:
        """The record type of a task's arguments, as `submit_many` takes them fastest."""
        found: np.dtype[Any] = self._task(name).row_dtype
        return found

    def _push_all(
        self, lane: Any, number: int, task: PreparedTask, rows: Any, start: int, end: int, parts: list[Any]
    ) -> None:
        while start < end:
            taken, future = lane.push_many(number, rows, rows.dtype.itemsize, end, task.result_code, start)
            if taken:
                parts.append(future)
                start += taken
            else:
                self._check_open()
                self._wait_for_room(lane)

    def _spread(self, number: int, task: PreparedTask, rows: Any, parts: list[Any]) -> None:
        """Pieces of the rows to all lanes, in turn; whole rings' worth where there are many."""
        lanes = self._lanes
        piece = max(1, min(self._capacity // 2, -(-len(rows) // len(lanes))))
        start, turn = 0, next(self._next_lane)
        while start < len(rows):
            end = min(len(rows), start + piece)
            self._push_all(lanes[turn % len(lanes)], number, task, rows, start, end, parts)
            start, turn = end, turn + 1

    async def run(self, name: str, *args: Any) -> Any:
        """Submit a task and await its result."""
        return await self.submit(name, *args)

    def _wait_for_room(self, lane: Any) -> None:
        """Wait until a quarter of a full ring is free: one doorbell for each freed slot would be slow."""
        lane.wait(max(lane.done + 1, lane.submitted - self._capacity * 3 // 4), 20_000, _SLICE_NS)
        self._waiting.look(lane)

    def _lane(self) -> Any:
        self._check_open()
        lane = getattr(self._local, "lane", None)
        if lane is None:
            lane = self._local.lane = self._lanes[next(self._next_lane) % len(self._lanes)]
        return lane

    def _task(self, name: str) -> PreparedTask:
        try:
            return self._tasks[name]
        except (KeyError, TypeError):
            raise ArgumentError(f"there is no task {name!r}; the tasks are: {', '.join(self._tasks)}") from None

    def _plan(self, name: str) -> bytes:
        self._task(name)
        return self._plans[name]

    # --- life

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every task submitted so far is done; whether that is so after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for lane, head in [(lane, lane.submitted) for lane in self._lanes]:
            while not lane.wait(head, 50_000, _SLICE_NS):
                if deadline is not None and time.monotonic() > deadline:
                    return False
                self._waiting.look(lane)
        return True

    def pause(self) -> None:
        """Have the grid end at a task boundary: its arrays are at rest. Tasks that wait stay in the ring until `resume`."""
        with self._control:
            self._check_open()
            self._grid.pause()

    def resume(self) -> None:
        """Go on where `pause` stopped."""
        with self._control:
            self._check_open()
            self._grid.start()

    @contextmanager
    def paused(self) -> Iterator[Self]:
        """For a block in which the grid does not run: to save its arrays, or for other libraries to load their code."""
        with self._control:
            was_wanted = self._grid.is_wanted
            self.pause()
            try:
                yield self
            finally:
                if was_wanted and not self._closed:
                    self.resume()

    def add(self, name: str, body: Any) -> float:
        """Add a task, or replace one, while the grid runs; how long the grid stood still, in seconds.

        The program is compiled, or found in the cache, beside the running grid. Then the grid ends at a task boundary, and one
        with the new program goes on with the same rings.
        """
        with self._control:
            self._check_open()
            tasks = dict(self._tasks)
            fresh = self._prepared({name: body}, {})[name]
            number = tasks[name].number if name in tasks else len(tasks)
            tasks[name] = fresh.with_number(number)
            if (needed := slot_bytes(tasks.values(), 0)) > self._slot:
                raise ArgumentError(
                    f"task {name} needs {needed - 8} bytes for its arguments, and there is room for {self._slot - 8}: pass "
                    f"argument_bytes={needed - 8} to kk.Resident"
                )
            lease = self.cache.get(self._source(tasks))
            began = time.perf_counter()
            with self._grid.out_of_the_way():
                lease.program.make_resident()
                self._grid.use(lease)
                self._set_tasks(tasks)
            self.last_pause_seconds = time.perf_counter() - began
            return self.last_pause_seconds

    def stop(self, timeout: float | None = None) -> None:
        """End the grid at the next task boundary. Tasks that did not begin fail with `DeviceError`.

        `DeviceError` says what runs if it has not ended after `timeout` seconds.
        """
        with self._control:
            if self._closed:
                return
            if timeout is not None:
                self._grid.end_seconds = timeout
            try:
                self._grid.pause()
            finally:
                self._closed = True
                self._fail(DeviceError("the resident grid was stopped before this task"))
                self._waiting.close()
            self._grid.close()

    def close(self) -> None:
        """Wait for the tasks that were submitted, and stop."""
        if self._closed:
            return
        if self._failure is None and self._grid.is_wanted:
            with suppress(DeviceError):
                self.drain()
        self.stop()

    def mark_lost(self, reason: str) -> None:
        """In a forked child: nothing here is ours."""
        self._closed = True
        self._fail(DeviceError(reason))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *exc: object) -> None:
        if kind is None:
            self.close()
        else:
            self.stop()

    # --- what ran when

    @property
    def timeline(self) -> ResidentTimeline:
        """When which task ran on which block, as far back as `timeline=` entries of each block go."""
        self._check_open()
        if not self._grid.timeline:
            raise ArgumentError(
                "this resident grid keeps no timeline: pass timeline=4096, the entries kept for each block"
            )
        offset = clock_offset(self._grid.view) if self._grid.runs else 0.0
        return read_timeline(self.device.spec, self._grid.read_traces(), self._by_number, offset)

    def save_trace(self, path: str | os.PathLike[str], *others: Any) -> None:
        """Write the timeline as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

        `others` may name executors: their timelines go into the same file, on the same clock.
        """
        save_traces(path, [self.timeline, *(one.timeline for one in others)])

    # --- what goes wrong

    def describe(self) -> str:
        """What the blocks are doing, in one sentence."""
        return describe(self._grid.view, self._by_number)

    def _on_silence(self, lane: Any) -> None:
        try:
            self._grid.check()
        except DeviceError as error:
            self._fail(error)
            raise
        done = lane.done
        lasts = self._silence.lasts(self._numbers[id(lane)], done) if lane.submitted > done else 0.0
        if lasts > self._silence.seconds and self._grid.runs:
            raise TaskSilent(f"nothing was done for {lasts:.0f} s: {self.describe()}. {WAY_OUT}")

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        for lane in getattr(self, "_lanes", ()):
            if lane.failure is None:
                lane.failure = error

    def _check_open(self) -> None:
        if self._failure is not None and not self._closed:
            raise self._failure
        if self._closed:
            raise DeviceError("this resident grid was stopped")

    def __repr__(self) -> str:
        if self._closed:
            return "<Resident, stopped>"
        return f"<Resident of {', '.join(self._tasks)} in {self.blocks} blocks on {self.device.spec}>"
