"""`kk.Resident`: tasks for a kernel that never exits.

    with kk.Resident(cache, tasks={"axpy": "(float a, int n) { … }"}, arrays={"x": x, "y": y}) as resident:
        resident.submit("axpy", 2.0, n).result()
        resident.submit_many("axpy", rows)
        await resident.run("axpy", 2.0, n)

A thread's tasks run one after the other, in the order of submission: they go to one block. `submit_many(…, ordered=False)`
spreads them over all blocks.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from .. import settings
from ..activity import live
from ..activity.facts import Facts
from ..activity.spans import span
from ..cache.program_cache import ProgramCache
from ..continuous.checkpoints.checkpoint import Checkpoint, Written
from ..errors import ArgumentError, DeviceError, TaskSilent
from .argument_checks import timeout_seconds
from .arguments import argument_error, rows_of, timeline_entries
from .assembly import Assembly
from .diagnosis import WAY_OUT, Silence, describe, not_ended
from .future import BatchFuture, TaskFuture, Waiting
from .graph import TaskGraph
from .graph_check import GraphLimits
from .graph_memory import LoadedGraphs
from .grid import DeviceGrid
from .open_residents import add_open_resident, discard_open_resident, warn_unclosed
from .pulse import Pulse
from .quick_switches import quick_switches
from .saving import save_arrays
from .submitter import submitter_type
from .task import GRAPH_PLAN
from .timeline import ResidentTimeline, clock_offset, read_timeline, save_traces

if TYPE_CHECKING:
    from .submitter import PythonSubmitter as Submitter
else:
    Submitter = submitter_type()


class Resident(Submitter):
    """A grid that stays on the device and runs tasks as they are submitted. A context manager that stops it.

    `tasks` has a body, a `kk.Task` or a kernel for each name; `arrays` the device arrays that they use by name; NumPy
    arrays are uploaded. `blocks` is how many blocks stay, by default one on each processor (SM); `sms` keeps the grid to that
    many processors. `threads` is the number of work-items in a block, 128 by default; `capacity` how many tasks of a block can
    wait, a power of two; `argument_bytes` makes room for tasks with longer arguments that are added later. Whoever waits for a
    task that takes longer than `silence_seconds` gets `TaskSilent`, which says what runs where; the task goes on. `timeline` is
    how many tasks each block remembers for `save_trace`. With `journal`, a file, the tasks that an earlier process did not see
    acknowledged run first.
    """

    def __init__(
        self,
        cache: ProgramCache,
        tasks: Mapping[str, Any],
        arrays: Mapping[str, Any] | Checkpoint | None = None,
        *,
        blocks: int | None = None,
        sms: int | None = None,
        threads: int | None = None,
        capacity: int = 1024,
        argument_bytes: int = 0,
        timeline: int = 0,
        silence_seconds: float | None = None,
        journal: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(cache, ProgramCache):
            raise ArgumentError(f"cache must be a kk.ProgramCache, got a {type(cache).__name__}")
        self.cache, self.device = cache, cache.device
        self.last_pause_seconds = 0.0
        self._opened = time.time()
        self._closed = False  # for users
        self._ended = True  # on the device; nothing has begun there yet
        self._said_when_closed = "this resident grid was stopped"
        self._control = threading.RLock()  # held by what starts, pauses, changes and stops the grid
        self._paused_by: int | None = None  # the thread that did
        self._silence = Silence(settings.RESIDENT_SILENCE_SECONDS if silence_seconds is None else silence_seconds)
        self._failure: BaseException | None = None
        self._waiting = Waiting(self._on_silence, spin_ns=settings.RESIDENT_HOST_SPIN_NS)
        self._grid = self._new_grid(sms, timeline_entries(timeline))
        self._graphs = LoadedGraphs(self._grid)
        self._parts = Assembly(
            self._grid, self.device, tasks, arrays, threads=threads, blocks=blocks, capacity=capacity,
            argument_bytes=argument_bytes, journal=journal, waiting=self._waiting,
        )  # fmt: skip
        self.arrays, self.threads, self.layout = self._parts.arrays, self._parts.threads, self._parts.layout
        self.recovered = self._parts.recovered
        self._lanes = self._parts.lanes
        self._all_lanes = tuple(self._lanes.all)
        self.set_plans(self._parts.table.plans, self._all_lanes)
        self._grid.diagnose = self.describe
        try:
            self._ended = False
            self.device.add_tenant(self)
            self.cache.add_tenant(self)
            self._grid.start()
        except BaseException:
            self._closed = self._ended = True
            self._parts.close()
            raise
        self._pulse = Pulse(self._lanes)
        self._before = sum(self._lanes.done())  # by earlier processes: those of a journal are done, or submitted again
        add_open_resident(self)
        live.add("resident", self, Resident.live_facts)

    @classmethod
    def emulated(
        cls,
        cache: ProgramCache,
        tasks: Mapping[str, Any],
        arrays: Mapping[str, Any] | Checkpoint | None = None,
        **options: Any,
    ) -> Resident:
        """The same on host threads: no kernel stays, and a task is a launch that its block's thread waits for.

        For tests, and for devices that cannot keep a kernel. Rings, futures, order, graphs and errors are the same; what is
        fast on a device with resident grids is slow here. `blocks` is 2 by default.
        """
        return _EmulatedResident(cache, tasks, arrays, **options)

    # --- what it is made of

    def _new_grid(self, sms: int | None, timeline: int) -> Any:
        return DeviceGrid(self.cache, sms=sms, timeline=timeline)

    @property
    def blocks(self) -> int:
        """How many blocks stay on the device."""
        return self.layout.lanes

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(self._parts.table.named)

    @property
    def closed(self) -> bool:
        """Whether it was stopped."""
        return self._closed

    @property
    def submitted(self) -> tuple[int, ...]:
        """How many tasks were submitted to each block, ever: with a journal, also by processes before this one."""
        return tuple(lane.submitted for lane in self._lanes.all)

    @property
    def done(self) -> tuple[int, ...]:
        """How many tasks each block has acknowledged, ever."""
        return self._lanes.done()

    # --- submitting

    if TYPE_CHECKING:

        def submit(self, name: str, /, *args: Any, **named: Any) -> TaskFuture:
            """Have a task run; returns at once, unless the ring of the block is full. The future has its result."""

    def _submit_slowly(self, name: str, *args: Any, **named: Any) -> TaskFuture:
        """As `submit`, which leaves to this what is unusual."""
        if named:
            known = "".join(f", {one}" for one in self._parts.table.task(name).names)
            raise ArgumentError(f"the arguments of task {name} go by position, without names: submit({name!r}{known})")
        lane = self._lane_of_thread()
        while (future := self._try_submit(lane, name, args)) is None:
            self._lanes.wait_for_room(lane)
        return future

    def _try_submit(self, lane: Any, name: str, args: tuple[Any, ...]) -> TaskFuture | None:
        """As `submit`; None where the ring is full."""
        self._check_open()
        table = self._parts.table
        task = table.task(name)
        try:
            future: TaskFuture | None = lane.push(table.plans[name], args)
        except (TypeError, OverflowError) as error:
            raise argument_error(task, args, error) from None
        return future

    def _lane_of_thread(self) -> Any:
        """The lane that takes what this thread submits."""
        return self._lanes.of_thread()

    def submit_many(self, name: str, rows: Any, *, ordered: bool = True) -> BatchFuture:
        """Have a task run once for each row of arguments, with one doorbell for as many as fit into the ring.

        `rows` is a NumPy record array whose fields are the arguments (`rows_dtype(name)` has them as the ring does, which
        saves a copy), an array with a column for each, or for a task without arguments a number. With `ordered=False` the
        tasks are spread over all blocks, and run in any order. The results come as one array, in the order of the rows.
        """
        self._check_open()
        task = self._parts.table.task(name)
        parts = self._lanes.push_rows(task, rows_of(task, rows), self._check_open, ordered=ordered)
        return BatchFuture(parts, task.result_code)

    def rows_dtype(self, name: str) -> np.dtype[Any]:
        """The record type of a task's arguments, as `submit_many` takes them fastest."""
        found: np.dtype[Any] = self._parts.table.task(name).row_dtype
        return found

    async def run(self, name: str, *args: Any) -> Any:
        """Submit a task and await its result. Where the ring is full, this coroutine waits for room; its loop goes on."""
        lane = self._lane_of_thread()
        future = None if self._lanes.lines else self._try_submit(lane, name, args)
        if future is None:
            future = await self._lanes.push_in_loop(lane, lambda: self._try_submit(lane, name, args))
        return await future

    def graph(self, *, name: str | None = None, limits: GraphLimits | None = None) -> TaskGraph:
        """A new graph: tasks with dependencies, which run together with one doorbell. See `resident/graph.py`."""
        self._check_open()
        return TaskGraph(
            lambda task: self._parts.table.task(task),
            self._run_graph,
            self._graphs,
            self.layout.slot,
            name=name,
            limits=limits,
        )

    def _run_graph(self, address: int) -> TaskFuture:
        return self._lanes.push(self._lanes.of_thread(), GRAPH_PLAN, (address,), self._check_open)

    # --- life

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until every task submitted so far is done; whether that is so after `timeout` seconds."""
        self._check_open()
        return self._lanes.drain(timeout)

    def pause(self) -> None:
        """Have the grid end at a task boundary: its arrays are at rest. Tasks that wait stay in the ring until `resume`."""
        with self._control:
            self._check_open()
            self._grid.pause()
            self._paused_by = threading.get_ident()

    def resume(self) -> None:
        """Go on where `pause` stopped."""
        with self._control:
            self._check_open()
            self._silence.begin_again()
            self._grid.start()
            self._paused_by = None
            if self._grid.is_ending:  # `pause` has failed before
                raise DeviceError(f"{not_ended(self.describe(), self._grid.end_seconds)}. All go on by themselves then")

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

    def save(self, path: str | os.PathLike[str]) -> Written:
        """Write the arrays into a checkpoint, at a task boundary; `kk.read_checkpoint(path)` reads it.

        `arrays=checkpoint.state` goes on from it, in another process or on another device. With a journal, `arrays=checkpoint`
        runs every task again that was submitted since. An earlier one that a resident grid saved there is replaced; any other
        file is a `CheckpointError`.
        """
        with self.paused():
            journal = self._parts.journal.id if self._parts.journal is not None else ""
            return save_arrays(path, self.device, self.arrays, self.tasks, self._lanes.done(), journal)

    def add(self, name: str, body: Any) -> float:
        """Add a task, or replace one, while the grid runs; how long the grid stood still, in seconds.

        The program is compiled, or found in the cache, beside the running grid. Then the grid ends at a task boundary, and one
        with the new program goes on with the same rings. Tasks that wait run the new body if it has the same arguments, result
        and `whole_grid` as the old one; else they run the old one.
        """
        # Beside busy threads, files and driver calls would take seconds.
        with self._control, quick_switches(), span("resident.add", task=str(name), device=self.device.spec) as current:
            self._check_open()
            table, program = self._parts.with_task(name, body)
            try:
                self._grid.prepare(program)
                began = time.perf_counter()
                with self._grid.out_of_the_way():
                    ended = max(began, self._grid.ended_at)  # until it was told to end, it ran
                    self._parts.use(table, program)
                    self.set_plans(table.plans, self._all_lanes)
            except BaseException:
                if not self._grid.uses(program):
                    program.release()
                raise
            launched, again = self._grid.launched_at, self._grid.ended_at
            if launched < ended:  # another thread still keeps it out of the way; or it was paused before, and still is
                launched = time.perf_counter() if self._grid.is_wanted else ended
            if again > ended:  # another thread has had it out of the way since
                launched = min(launched, again)
            self.last_pause_seconds = launched - ended
            current.set(paused_seconds=self.last_pause_seconds)
            return self.last_pause_seconds

    def stop(self, timeout: float | None = None) -> None:
        """End the grid at the next task boundary. Tasks that did not begin fail with `DeviceError`.

        `DeviceError` says what runs if it has not ended after `timeout` seconds.
        """
        limit = timeout_seconds(timeout)
        try:
            self._stop(limit)
        finally:
            self._waiting.close()  # without the lock: callbacks may use it

    def _stop(self, timeout: float | None) -> None:
        with self._control:
            if self._ended:
                return
            usual = self._grid.end_seconds
            if timeout is not None:
                self._grid.end_seconds = timeout
            failed = self._failure is not None and not self._closed
            try:
                self._grid.pause()
            except BaseException:
                self._grid.abandon()
                if not failed or self._grid.runs:
                    raise
            finally:
                self._grid.end_seconds = usual
                self._closed = True
                stays = "; it stays in the journal" if self._parts.journal is not None else ""
                self._fail(DeviceError(f"the resident grid was stopped before this task was done{stays}"))
                self._pulse.end()
            live.remove(self)
            self._note()
            self._graphs.clear()
            self._parts.close()
            self._ended = True
            discard_open_resident(self)

    def _note(self) -> None:
        """Leave a record in the diary."""
        with suppress(Exception):
            from .diary_notes import note_resident  # at the end

            tasks = self._parts.table.by_number()
            spans = read_timeline(self.device.spec, self._grid.read_traces(), tasks, 0.0).spans
            facts = {
                "seconds": round(time.time() - self._opened, 3),
                "emulated": self._grid.emulated,
                "blocks": self.blocks,
                "threads": self.threads,
                "tasks": max(0, sum(self._lanes.done()) - self._before),
                "launches": self._grid.launches,
                "last_pause_seconds": self.last_pause_seconds,
            }
            note_resident(self.cache, self._grid.view, tasks, facts, spans)

    def close(self) -> None:
        """Run the tasks that were submitted, also those that wait because the grid is paused, and stop.

        `TaskSilent` if one of them takes longer than `silence_seconds`. The grid stays open then and goes on: call `close` again
        to wait on, or `stop`. Any other error that keeps tasks from being done is raised after the grid was stopped.
        """
        problem: Exception | None = None
        if not self._closed and self._failure is None:
            try:
                self._finish()
            except TaskSilent:
                raise
            except Exception as error:
                problem = None if self._closed else error  # else another thread stopped it
        self.stop()
        if problem is not None:
            raise problem

    def _finish(self) -> None:
        with self._control:
            if not self._grid.is_wanted and any(lane.submitted > lane.done for lane in self._all_lanes):
                self.resume()
        self._lanes.drain(None)

    def end_at_exit(self) -> bool:
        """The interpreter ends, and so does the grid, without the tasks that wait; whether nobody had closed it.

        Does not take the lock, which another thread may hold for ever.
        """
        was_open = not self._closed
        if not was_open:  # `stop` has waited for it, and it did not end
            self._grid.end_seconds = 0.0
        with suppress(Exception):
            try:
                self._grid.pause()
            except DeviceError:
                self._grid.end_seconds = 0.0  # nobody else waits for it
                self._grid.abandon()
        self._closed = self._ended = True
        return was_open

    def __del__(self) -> None:
        if not getattr(self, "_ended", True) and not self._closed:
            warn_unclosed(repr(self))

    def mark_lost(self, reason: str) -> None:
        """In a forked child: nothing here is ours, and locks may be held by threads that do not exist here."""
        self._control = threading.RLock()
        self._waiting.waiter.mark_lost()
        self._closed = self._ended = True
        self._said_when_closed = reason
        self._fail(DeviceError(reason))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *exc: object) -> None:
        if kind is None:
            self.close()
        else:
            try:
                self.stop()
            except DeviceError as error:  # what the block raised says more
                if exc and isinstance(exc[0], BaseException):
                    exc[0].add_note(str(error))

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
        return read_timeline(self.device.spec, self._grid.read_traces(), self._parts.table.by_number(), offset)

    def save_trace(self, path: str | os.PathLike[str], *others: Any) -> None:
        """Write the timeline as a Chrome trace, which ui.perfetto.dev and chrome://tracing open.

        `others` may name executors: their timelines go into the same file, on the same clock.
        """
        for one in others:
            if not hasattr(type(one), "timeline"):
                raise ArgumentError(f"others must be executors or resident grids, got {one!r}")
        save_traces(path, [self.timeline, *(one.timeline for one in others)])

    def live_facts(self) -> Facts:
        """What `kernelkeep top` and metrics show of this grid: words of the ring, which is host memory."""
        done, submitted = sum(self._lanes.done()), sum(self.submitted)
        return Facts(
            {"device": self.device.spec, "emulated": self._grid.emulated, "blocks": self.blocks},
            {
                "tasks": max(0, done - self._before),
                "submitted_tasks": max(0, submitted - self._before),
                "launches": self._grid.launches,
            },
            {
                "queued": max(0, submitted - done),
                "capacity": self.layout.capacity * self.blocks,
                "alive": self._grid.runs and self._failure is None and not self._closed,
                "paused": not self._grid.is_wanted,
                "tasks": list(self.tasks),
                "last_pause_seconds": self.last_pause_seconds,
                "problem": None if self._failure is None else str(self._failure),
            },
        )

    # --- what goes wrong

    def describe(self) -> str:
        """What the blocks are doing, in one sentence."""
        if not self._grid.runs and self._failure is None and not self._closed:
            waiting = sum(lane.submitted - lane.done for lane in self._all_lanes)
            why = "is out of the way of another thread" if self._grid.is_wanted else "is paused"
            return f"the resident grid {why}, and {waiting} task{' waits' if waiting == 1 else 's wait'}"
        return describe(self._grid.view, self._parts.table.by_number(), self._graphs)

    def _on_silence(self, lane: Any) -> None:
        try:
            self._grid.check()
        except Exception as error:
            self._fail(error)
            raise
        if self._paused_by == threading.get_ident():
            raise DeviceError("this thread paused the resident grid, so nothing is done: call resume() first")
        if not self._grid.runs:  # it is out of the way for other threads, which load or free something
            self._silence.begin_again()
            return
        done = lane.done
        lasts = self._silence.lasts(self._lanes.number_of(lane), done) if lane.submitted > done else 0.0
        if lasts > self._silence.seconds and self._grid.runs:
            raise TaskSilent(f"nothing was done for {lasts:.3g} s: {self.describe()}. {WAY_OUT}")

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.set_plans({}, self._all_lanes)  # `submit` looks for the reason then
        self._lanes.fail(error)

    def _check_open(self) -> None:
        if self._failure is not None and not self._closed:
            raise self._failure
        if self._closed:
            raise DeviceError(self._said_when_closed)

    def __repr__(self) -> str:
        if self._closed:
            return "<Resident, stopped>"
        kind = "Resident, emulated," if self._grid.emulated else "Resident"
        return f"<{kind} of {', '.join(self.tasks)} in {self.blocks} blocks on {self.device.spec}>"

    def _repr_html_(self) -> str:
        from .html import resident_html

        return resident_html(self)


class _EmulatedResident(Resident):
    def _new_grid(self, sms: int | None, timeline: int) -> Any:
        from .emulated import EmulatedGrid

        if sms is not None:
            raise ArgumentError("sms must be left out: an emulated grid has no processors of its own")
        return EmulatedGrid(self.cache, timeline=timeline)
