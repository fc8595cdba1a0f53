"""An emulated grid: the same ring and the same rules with a host thread for each block, on any device.

A block's thread does what a block of `programs/languages/cuda_resident.cu` does. A task is a launch that it waits for, so what is
emulated is the grid, not the device.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import settings
from ..cache.program_cache import ProgramCache
from ..devices.array import Array
from ..errors import ArgumentError, DeviceError
from ..platforms import system
from ..programs.task_program import TaskArray
from .diagnosis import not_ended
from .emulated_block import EmulatedBlock, Shared
from .emulated_graph import EmulatedGraph
from .emulated_program import EmulatedProgram, open_program
from .graph_layout import GraphLayout
from .protocol import EXIT, RUN, Layout, RingView
from .task import PreparedTask

_BLOCKS = 2
_MOST_BLOCKS = 64
_BEAT_SECONDS = 0.02
_running: set[EmulatedGrid] = set()  # they live until they are stopped, as on a device


class EmulatedGrid:
    """Blocks that are threads. See `DeviceGrid`, which has the same methods."""

    emulated = True

    def __init__(self, cache: ProgramCache, *, timeline: int) -> None:
        self.cache, self.device = cache, cache.device
        self.timeline = timeline
        self.is_wanted = False
        self.blocks = 0
        self.diagnose: Callable[[], str] = lambda: ""
        self.end_seconds = settings.RESIDENT_END_SECONDS
        self.launches = 0
        self.launched_at = self.ended_at = 0.0
        self._program: EmulatedProgram | None = None
        self._threads: list[EmulatedBlock] = []
        self._ending = False  # told to end
        self._lock = threading.RLock()
        self._graphs: weakref.WeakValueDictionary[int, EmulatedGraph] = weakref.WeakValueDictionary()
        self._shared: Shared | None = None

    # --- the program

    def get_program(
        self, tasks: Sequence[PreparedTask], arrays: Sequence[TaskArray], slot: int, capacity: int, threads: int
    ) -> EmulatedProgram:
        """The tasks, compiled or from the cache."""
        return open_program(self.cache, tasks, arrays, threads)

    def prepare(self, program: EmulatedProgram) -> None:
        """Nothing can be done before the threads have ended."""

    def use(self, program: EmulatedProgram) -> None:
        """The program from the next start on."""
        old, self._program = self._program, program
        if old is not None:
            old.release()

    def uses(self, program: EmulatedProgram) -> bool:
        """Whether it has this program, and so releases it."""
        return self._program is program

    def count_blocks(self, program: EmulatedProgram, wanted: int | None) -> int:
        """How many threads to start."""
        if wanted is None:
            return _BLOCKS
        if not isinstance(wanted, int) or isinstance(wanted, bool) or not 1 <= wanted <= _MOST_BLOCKS:
            raise ArgumentError(f"blocks must be 1 to {_MOST_BLOCKS} for an emulated grid, got {wanted!r}")
        return wanted

    def new_ring(self, layout: Layout) -> np.ndarray[Any, Any]:
        """Memory for a ring, empty."""
        memory = np.zeros(layout.total_bytes + 128, "u1")
        start = -memory.ctypes.data % 128
        memory = memory[start : start + layout.total_bytes]
        layout.initialize(memory)
        return memory

    def place(self, ring: np.ndarray[Any, Any], layout: Layout, arrays: Sequence[Array], blocks: int) -> None:
        """Fix what does not change from start to start."""
        self.view = RingView(layout, ring)
        self.blocks = blocks
        self._arrays = list(arrays)
        self._traces = np.zeros((blocks, 128 + self.timeline * 32 if self.timeline else 0), "u1")
        has_queues = self.device.capabilities.queues
        self._queues = [self.device.queue() if has_queues else None for _ in range(blocks)]

    def load_graph(self, layout: GraphLayout) -> EmulatedGraph:
        """A graph as the blocks take it."""
        graph = EmulatedGraph(layout)
        self._graphs[graph.address] = graph
        return graph

    # --- life

    @property
    def runs(self) -> bool:
        """Whether the threads were started and not told to end."""
        return bool(self._threads)

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end and has not: a task of it takes long."""
        return self._ending

    def start(self) -> None:
        before = self.is_wanted
        self.is_wanted = True
        try:
            self.resume()
        except BaseException:
            self.is_wanted = before
            raise

    def pause(self) -> None:
        self.is_wanted = False
        try:
            self.suspend()
        except BaseException:
            self.is_wanted = True
            raise

    def suspend(self) -> None:
        """Have the threads end at a task boundary, and wait until they have."""
        with self._lock:
            if not self._threads:
                return
            self.ended_at = time.perf_counter()
            self.view.command[:] = EXIT
            self._ending = True
            deadline = time.monotonic() + self.end_seconds
            assert self._shared is not None
            self._shared.wake()
            for thread in self._threads:
                if not thread.ended.wait(max(0.0, deadline - time.monotonic())):
                    # The command stands: blocks that have seen it take no more tasks, and end when all can.
                    raise DeviceError(not_ended(self.diagnose(), self.end_seconds))
            self._have_ended()

    def _have_ended(self) -> None:
        self._threads = []
        self._ending = False
        _running.discard(self)
        self.view.command[:] = RUN

    def abandon(self) -> None:
        """Threads that do not end: when their tasks end after all, they take no others."""
        self.is_wanted = False
        self.view.command[:] = EXIT

    def resume(self) -> None:
        """Start the threads, if they are wanted."""
        with self._lock:
            if self._ending and all(thread.ended.is_set() for thread in self._threads):
                self._have_ended()
            if self._threads or not self.is_wanted:
                return
            assert self._program is not None
            if self._shared is not None and self._shared.failure is not None:
                raise self._shared.failure
            self.device.synchronize()  # the arrays are there before any queue uses them
            self.view.command[:] = RUN
            _running.add(self)
            self._shared = Shared(self.device, self.view, self._program, self._arrays, self._graphs)
            self._threads = [
                EmulatedBlock(self._shared, number, self._queues[number], self._traces[number])
                for number in range(self.blocks)
            ]
            self._start_threads(self._shared)
            self.launches += 1

    def _start_threads(self, shared: Shared) -> None:
        try:
            for thread in self._threads:
                thread.start()
            self.launched_at = time.perf_counter()
            threading.Thread(target=_beat, args=(list(self._threads),), name="kernelkeep-beats", daemon=True).start()
        except BaseException as error:
            for thread in self._threads:
                if thread.ident is None:
                    thread.ended.set()  # one that begins after all sees the failure, and ends
            failure = DeviceError(f"the emulated grid cannot start: {str(error) or type(error).__name__}")
            if isinstance(error, Exception):
                shared.fail(failure)
            else:  # Ctrl-C: the next start makes other threads
                self._end_started(shared, failure)
            if isinstance(error, RuntimeError):  # the system has no more threads
                raise DeviceError(f"the emulated grid cannot start: {error}") from None
            raise

    def _end_started(self, shared: Shared, failure: DeviceError) -> None:
        """Have the threads that have begun end, at a task boundary unless that takes long; others will not begin."""
        self.view.command[:] = EXIT
        self._ending = True
        started = [thread for thread in self._threads if thread.ident is not None]
        with shared.changed:
            shared.changed.notify_all()
            shared.changed.wait_for(lambda: shared.leaving >= len(started), self.end_seconds)
        shared.fail(failure)
        if all(thread.ended.wait(self.end_seconds) for thread in started):
            self._have_ended()
            self._shared = None

    @contextmanager
    def out_of_the_way(self) -> Iterator[None]:
        """No task runs meanwhile."""
        self.suspend()
        try:
            yield
        finally:
            self.resume()

    def check(self) -> None:
        """Raise what ended a block. Blocks that ended late, when told to, are started again."""
        if self._shared is not None and self._shared.failure is not None:
            raise self._shared.failure
        if self._ending:
            self.resume()

    def close(self) -> None:
        """Release the program. The threads have ended."""
        if self._program is not None:
            self._program.release()
            self._program = None
        self._queues = []

    def read_traces(self) -> np.ndarray[Any, Any]:
        """The traces of all blocks, as they are now: a row of bytes for each."""
        return self._traces.copy() if self.timeline else np.zeros((0, 0), "u1")


def _beat(threads: Sequence[EmulatedBlock]) -> None:
    """Say for each block that it lives and what it runs, until all have ended."""
    alive = True
    while alive:
        time.sleep(_BEAT_SECONDS)
        alive = False
        for thread in threads:
            alive |= thread.beat()


system.on_fork(after_in_child=_running.clear)  # the threads do not exist there
