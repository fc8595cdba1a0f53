"""The grid: the program that a resident's tasks became, launched over a ring, and launched again over the same ring.

There is one way out of the way. The grid ends at a task boundary and another is launched later: to pause, to add tasks, to load
other code, to free memory. `done` in the ring tells where to go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import settings
from ..cache.lease import Lease
from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..errors import ArgumentError, DeviceError
from ..programs.task_program import TaskArray, TaskProgram, TaskProgramSource
from .diagnosis import not_ended
from .graph_layout import GraphLayout
from .graph_memory import DeviceGraphMemory, GraphMemory
from .protocol import EXIT, RUN, Layout, RingView
from .quick_switches import no_collections, quick_switches
from .task import PreparedTask

_GRID_BYTES = 16384  # what blocks share; set to 0 before each start
_HELD_BYTES = 8192  # records that a block holds


class DeviceGrid:
    """A grid on a device."""

    emulated = False

    def __init__(self, cache: ProgramCache, *, sms: int | None, timeline: int) -> None:
        self.cache, self.device = cache, cache.device
        self.blocks_place = self.device.open_resident_blocks(sms=sms)
        self.timeline = timeline
        self._lock = threading.RLock()
        self._lease: Lease | None = None
        self._running = self._ending = False  # launched; and told to end
        self._failure: DeviceError | None = None  # of the last launch
        self.is_wanted = False
        self.blocks = 0
        self.diagnose: Callable[[], str] = lambda: ""
        self.end_seconds = settings.RESIDENT_END_SECONDS
        self.launches = 0
        self.launched_at = self.ended_at = 0.0  # launched, and told to end, the last time: by `time.perf_counter`

    # --- the program

    def program_of(
        self, tasks: Sequence[PreparedTask], arrays: Sequence[TaskArray], slot: int, capacity: int, threads: int
    ) -> TaskProgramSource:
        """The source of a program with these tasks."""
        constants = dict(
            THREADS=threads,
            SLOT=slot,
            HELD=max(8, min(512, _HELD_BYTES // slot, capacity)),
            CAPACITY=capacity,
            RESULTS=int(any(task.result for task in tasks)),
            SPINS=settings.RESIDENT_SPINS,
            NAPS=settings.RESIDENT_NAPS,
            TIMELINE=self.timeline,
        )
        program = TaskProgram(tuple(task.parts for task in tasks), tuple(arrays), constants)
        return TaskProgramSource(program, self.device.language, "resident")

    def get_program(
        self, tasks: Sequence[PreparedTask], arrays: Sequence[TaskArray], slot: int, capacity: int, threads: int
    ) -> Lease:
        """That program, compiled or from the cache."""
        return self.cache.get(self.program_of(tasks, arrays, slot, capacity, threads))

    def count_blocks(self, lease: Lease, wanted: int | None) -> int:
        """How many blocks to launch: as wanted, or one for each processor."""
        most = self.blocks_place.count_blocks(lease.program)
        if wanted is None:
            return min(most, self.blocks_place.processors)
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= most:
            raise ArgumentError(
                f"blocks must be 1 to {most}, which fit on {self.device.spec} with these tasks, got {wanted!r}"
            )
        return wanted

    def new_ring(self, layout: Layout) -> np.ndarray[Any, Any]:
        """Memory for a ring, empty."""
        memory = self.blocks_place.host_memory(layout.total_bytes)
        layout.initialize(memory)
        return memory

    def place(self, ring: np.ndarray[Any, Any], layout: Layout, arrays: Sequence[Array], blocks: int) -> None:
        """Fix what does not change from launch to launch."""
        self.view = RingView(layout, ring)
        self.blocks = blocks
        # Two: the one that the next launch has is set to 0 while a grid still runs.
        self._grid, self._next = (self.device.array(np.zeros(_GRID_BYTES, "u1")) for _ in range(2))
        self._next_is_zero = True
        bytes_each = 128 + self.timeline * 32
        self._traces = self.device.array(np.zeros(bytes_each * blocks if self.timeline else 16, "u1"))
        self._ring_address = self.blocks_place.map_memory(ring)
        self._arrays = list(arrays)

    def prepare(self, lease: Lease) -> None:
        """Do what can be done for the first launch of a program while the grid runs."""
        if self._running:
            self.blocks_place.prepare(lease.program, self.blocks, self._arguments(self._next))

    def _arguments(self, grid: Array) -> tuple[int, ...]:
        """Of a launch: addresses."""
        addresses = (self.blocks_place.address_of(one) for one in (grid, self._traces, *self._arrays))
        return (self._ring_address, *addresses)

    def use(self, lease: Lease) -> None:
        """The program of the next launch. No grid runs, or none was started."""
        lease.program.make_resident()
        old, self._lease = self._lease, lease
        if old is not None:
            old.release()

    def uses(self, lease: Lease) -> bool:
        """Whether it has this program, and so releases it."""
        return self._lease is lease

    def load_graph(self, layout: GraphLayout) -> GraphMemory:
        """Memory with a graph, beside the running grid."""
        return DeviceGraphMemory(self.blocks_place, self.device, layout)

    # --- life

    @property
    def runs(self) -> bool:
        """Whether the kernel was launched and has not been seen to end."""
        return self._running

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end and has not: a task of it takes long."""
        return self._ending

    def start(self) -> None:
        """Launch, and have the device's other work respect the grid."""
        before = self.is_wanted
        self.is_wanted = True
        try:
            self.blocks_place.add(self)
        except BaseException:
            self.is_wanted = before  # nobody launches it: who waits for its tasks has to start it once more
            raise

    def pause(self) -> None:
        """Have it end, and let the device be as if it were not there."""
        self.is_wanted = False
        try:
            self.suspend()
        except BaseException:
            self.is_wanted = True  # it goes on when its tasks have ended
            raise
        self.blocks_place.remove(self)

    def suspend(self) -> None:
        with self._lock:
            if not self._running:
                return
            self.ended_at = time.perf_counter()
            self.view.command[:] = EXIT
            self._ending = True
            # Where the time runs out the command stands: blocks that have seen it take no more tasks.
            if not self.blocks_place.wait(self.end_seconds):
                raise DeviceError(not_ended(self.diagnose(), self.end_seconds))
            self._has_ended()

    def _has_ended(self) -> None:
        self._running = self._ending = False
        self.view.command[:] = RUN

    def abandon(self) -> None:
        """A kernel that does not end: when its task ends after all, it takes no other. One that failed is gone."""
        self.is_wanted = False
        self.view.command[:] = EXIT
        try:
            self.blocks_place.wait(0)
        except DeviceError:
            self._running = False
            self.blocks_place.remove(self)

    def _withdraw(self) -> None:
        """A launch failed or was interrupted: have no grid run, since the driver may have launched it."""
        try:
            self.suspend()
        except DeviceError:  # the launch's own error is the one to raise
            try:
                self.blocks_place.wait(0)  # one that still runs was told to end: `_ending`
            except DeviceError:  # it failed, so it is gone
                self._running = self._ending = False

    def resume(self) -> None:
        with self._lock:
            if self._ending and self.blocks_place.wait(0):
                self._has_ended()
            if self._running or not self.is_wanted:
                return
            assert self._lease is not None
            program, failed = self._lease.program, "cannot be launched"
            try:
                if not self._next_is_zero:  # the launch before was interrupted
                    self._zero_next()
                self.view.command[:] = RUN
                # All before the launch: an interruption may come when the driver has launched it already.
                self._next_is_zero = False
                self._grid, self._next = self._next, self._grid
                self._running = True
                self.blocks_place.launch(program, self.blocks, self._arguments(self._grid))
                self.launched_at = time.perf_counter()
                failed = "was launched, and had to end again"
                self.blocks_place.launched(program, self.blocks)
                self._zero_next()
            except BaseException as error:
                self._withdraw()
                if isinstance(error, DeviceError):  # whoever waits for tasks hears of it
                    self._failure = error
                else:
                    self._failure = DeviceError(f"the resident grid {failed}: {str(error) or type(error).__name__}")
                raise
            self._failure = None
            self.launches += 1

    def _zero_next(self) -> None:
        """Set to 0 what the next grid's blocks share. No grid uses it."""
        self._next.copy_from(np.zeros(_GRID_BYTES, "u1"))
        self._next_is_zero = True

    @contextmanager
    def out_of_the_way(self) -> Iterator[None]:
        """No grid runs meanwhile. `DeviceError` if this one cannot be launched afterwards."""
        before = self._failure
        with quick_switches(), no_collections(), self.blocks_place.out_of_the_way():
            yield
        if self._failure is not None and self._failure is not before:
            raise self._failure

    def check(self) -> None:
        """Raise `DeviceError` if the kernel failed or ended by itself. One that ended late, when told to, is launched again."""
        if self._running and self.blocks_place.wait(0):
            with self._lock:
                if self._ending:
                    self.resume()
                elif self._running and self.blocks_place.wait(0):
                    raise DeviceError(f"the resident grid on {self.device.spec} has ended by itself")
        elif self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Free everything. The kernel has ended."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        self.blocks_place.close()

    def read_traces(self) -> np.ndarray[Any, Any]:
        """The traces of all blocks, as they are now: a row of bytes for each."""
        return self._traces.numpy().reshape(self.blocks, -1) if self.timeline else np.zeros((0, 0), "u1")
