"""Life beside resident grids: kernels that never exit.

Many driver calls wait until every kernel that runs on the GPU has ended. Beside a resident grid they would wait for ever. So
while one runs, calls that give something back are postponed (`context.Discarded`), and calls that somebody waits for are made
with the grids out of the way: each exits at the boundary of a task, the call is made, and the grids are launched again.

| call                                                  | beside a resident grid | so                                        |
|-------------------------------------------------------|------------------------|-------------------------------------------|
| cuKernelGetFunction, the first of a kernel            | blocks                 | out of the way: `CudaProgram.load_kernel` |
| cuLibraryLoadData, with CUDA_MODULE_LOADING=EAGER     | taken to block         | out of the way                            |
| cuLibraryLoadData, lazily (the default)               | does not block         | made at once                              |
| a first launch: of code that is not loaded            | blocks                 | the code is loaded before, see below      |
| a first launch: of a kernel with more local memory    | taken to block         | the memory is reserved before, see below  |
| cuCtxSetLimit                                         | taken to block         | out of the way                            |
| cuKernelSetAttribute (more shared memory)             | taken to block         | out of the way                            |
| cuGraphInstantiate, cuGraphUpload                     | taken to block         | out of the way; not made: `launch_graph`  |
| cuMemFree                                             | blocks                 | postponed                                 |
| cuLibraryUnload (as cuModuleUnload)                   | blocks                 | postponed                                 |
| cuMemFreeHost, cuMemHostUnregister                    | taken to block         | postponed                                 |
| cuGraphExecDestroy, cuGraphDestroy                    | taken to block         | postponed                                 |
| cuStreamDestroy, cuEventDestroy, cuGreenCtxDestroy    | taken to block         | postponed                                 |
| cuDevicePrimaryCtxRelease                             | taken to block         | postponed                                 |
| cuCtxSynchronize                                      | blocks                 | never called                              |
| cuMemAlloc, cuMemHostAlloc                            | do not block           | made at once; out of memory: see below    |
| cuMemHostRegister                                     | taken to block         | not made: the array is copied             |
| cuMemAlloc of more than is free                       | blocks                 | out of the way                            |
| launches of loaded kernels, cuGraphLaunch             | do not block           | made at once                              |
| copies, cuMemsetD8Async                               | do not block           | made at once                              |
| cuStreamCreate, cuEventCreate, cuGreenCtxCreate       | do not block           | made at once                              |
| cuEventRecord, cuEventQuery, cuEventElapsedTime       | do not block           | made at once                              |
| cuStreamWaitEvent, cuStreamQuery                      | do not block           | made at once                              |
| cuStreamSynchronize, cuEventSynchronize               | wait for their stream  | the grid's stream is not in `Streams`     |
| cuGraphCreate, cuGraphAdd…, cuGraphExec…SetParams     | taken not to block     | made at once: they change host memory     |
| cuOccupancy…, cuKernelGet…, cuLibraryGetKernel        | taken not to block     | made at once: they ask                    |
| cuDeviceGet…, cuMemGetInfo, cuPointerGetAttribute     | taken not to block     | made at once: they ask                    |
| cuDevicePrimaryCtxRetain, cuCtxPushCurrent, …Pop…     | taken not to block     | made at once                              |

"Blocks" and "does not block" were seen on an H200, but for cuCtxSynchronize, cuLibraryUnload (cuModuleUnload was seen),
cuGraphLaunch, cuMemsetD8Async and the queries of events and streams, which are taken for what is said here.
`benchmarks/beside_resident.py` measures each call of this table; it has not run on a GPU yet.

**Code.** Launches check nothing, so every kernel that can be launched has its code on the device: `add` loads what is there, and
while a grid is registered a kernel is loaded when a program is first asked for it (`program.kernel(…)`). The local memory of all
threads is one allocation. A launch that needs a larger one waits for every kernel; so it is enlarged when the code is loaded.

**Memory.** Freeing memory is postponed with the rest. When much has come together (an eighth of the device's memory, or 10,000
calls), the next allocation has the grids go out of the way. So does one that fails while calls are postponed; it is tried again.

**Other libraries.** Their launches and copies go on. Their own loading and freeing blocks, as every such call does: put it into
`with residents.out_of_the_way():`.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from ...errors import DeviceError
from ...weak_set import WeakSet
from ..resident_blocks import SuspendableGrid
from .context import Discarded
from .resident_room import Room

if TYPE_CHECKING:
    from .device import CudaDevice

_POLL_SECONDS = 20e-6
_WARN_SECONDS = 30.0
_MAX_CALLS = 10_000  # to be made at once: a few dozen milliseconds
_SHARE = 8  # at most an eighth of the device's memory waits to be freed


class Residents:
    """The resident grids of one GPU in this process, shared by all its devices."""

    _of: ClassVar[dict[int, Residents]] = {}

    def __init__(self, discarded: Discarded) -> None:
        self.discarded = discarded
        self.grids: list[SuspendableGrid] = []  # append and remove are atomic
        self.devices: WeakSet[CudaDevice] = WeakSet()
        self.room = Room()
        self._flag = threading.RLock()  # held for a few instructions: `grids` and `discarded.held` change together
        self._turn = threading.RLock()  # held while grids are suspended or launched
        self._no_block = threading.Condition(self._turn)
        self._inside: set[int] = set()  # the threads that are in a block of `out_of_the_way`
        self._changing: int | None = None  # the thread that suspends or launches grids
        self._slack = 1  # factor on the limits below, larger after a grid could not be suspended

    @classmethod
    def of(cls, index: int) -> Residents:
        """The grids of one GPU."""
        return cls._of.setdefault(index, cls(Discarded.of(index)))

    def add(self, grid: SuspendableGrid) -> None:
        """Register a grid and launch it (`grid.resume()`), after all code of the process is on the device.

        In this thread's `out_of_the_way` it is launched at the end of the block. If this raises, the grid is not registered and
        does not run. One that was registered before stays so: it is only launched, if it does not run, at the end of the blocks
        of all threads.
        """
        if threading.get_ident() in self._inside:
            if grid not in self.grids:
                self._register(grid)
            return
        with self._turn:
            if grid in self.grids:
                if not self._inside:
                    self._launch(grid)
                return
            self._no_block.wait_for(lambda: not self._inside)
            others = list(self.grids)
            try:
                self._suspend_all()
                try:
                    self._register(grid)
                finally:
                    self._resume_all(*others)  # first, so that they have room; their errors do not concern the new one
                self._postpone_calls()
                self._launch(grid)
            except BaseException:
                self._forget(grid)
                with contextlib.suppress(Exception):  # Ctrl-C may have come before all were
                    self._resume(*others)
                raise

    def remove(self, grid: SuspendableGrid) -> None:
        """The kernel of a grid has ended and is not launched again. After the last one, the postponed calls are made.

        Takes no lock that is held while a grid is suspended or launched.
        """
        self._forget(grid)
        if not grid.device.closed:
            with grid.device.current:
                self.discarded.clear()

    def _forget(self, grid: SuspendableGrid) -> None:
        try:
            self._take_out(grid)
        except BaseException:  # Ctrl-C: once more, or calls would stay postponed without a grid
            self._take_out(grid)
            raise

    def _take_out(self, grid: SuspendableGrid) -> None:
        with self._flag:
            if grid in self.grids:
                self.grids.remove(grid)
            if not self.grids:
                self.discarded.held = False

    @contextmanager
    def out_of_the_way(self, *, calls_seconds: float | None = None) -> Iterator[None]:
        """For a block with calls that wait for every running kernel: no grid runs meanwhile. May be nested.

        Several threads may be in such a block. The first one suspends the grids, the last one launches them again. The
        postponed calls are made before the block; with `calls_seconds`, those that would begin later stay postponed, until
        the next block without it. Raises what a grid's `suspend` raises. A grid that cannot be launched again is a
        `RuntimeWarning`: this thread may have nothing to do with it, and whoever waits for its tasks gets the error.
        """
        # A generator: where Ctrl-C comes before its end is called for, it ends when it is deleted. A class has no such place.
        thread = threading.get_ident()
        began = self._begin_block(thread, calls_seconds)
        try:
            yield
        finally:
            if began:
                try:
                    self._end_block(thread)
                except BaseException:
                    with contextlib.suppress(Exception):  # Ctrl-C leaves no grid away: what was done is not done again
                        self._end_block(thread)
                    raise

    def _begin_block(self, thread: int, calls_seconds: float | None) -> bool:
        """A block of a thread begins; False if the thread is in one already."""
        if thread in self._inside:
            return False
        if thread == self._changing:
            raise DeviceError("a resident grid must not load code or build graphs while it is suspended or launched")
        try:
            with self._turn:
                if self.discarded.held:
                    self._suspend_all(calls_seconds)
                elif calls_seconds is None:  # a block with less time, of another thread, may have left some
                    self._make_postponed_calls(self.grids, None)
                self._inside.add(thread)
        except BaseException:
            if thread in self._inside:  # Ctrl-C, such as while the lock was released: nobody else would end it
                self._end_block(thread)
            raise
        return True

    def _end_block(self, thread: int) -> None:
        with self._turn:
            self._inside.discard(thread)
            if not self._inside:
                self._no_block.notify_all()  # they go on when this lock is free
                if self.grids:
                    self._resume_all(*self.grids)

    def limit_postponed(self, memory_bytes: int) -> None:
        """Make the postponed calls if there are many: so what waits to be freed does not fill the device."""
        waiting = self.discarded.waiting
        calls, nbytes = _MAX_CALLS * self._slack, memory_bytes // _SHARE * self._slack
        if not waiting or (waiting < calls and self.discarded.count_bytes() < nbytes):
            return
        try:
            with self.out_of_the_way():
                self._slack = 1
        except DeviceError:  # a task that takes long: whoever waits for it is told; an allocation need not wait
            self._slack *= 2

    def _register(self, grid: SuspendableGrid) -> None:
        """Add a grid while none runs, and load all code."""
        thread = threading.get_ident()
        nested = thread in self._inside
        try:
            with self._flag:
                self.grids.append(grid)  # first: kernels that other threads make from now on are loaded at once
            self._inside.add(thread)
            for device in list(self.devices):
                device.load_all_code()
        except BaseException:
            self._forget(grid)
            raise
        finally:
            if not nested:
                self._inside.discard(thread)

    def _suspend_all(self, calls_seconds: float | None = None) -> None:
        """Suspend the grids, unless they are, and make the postponed calls."""
        if not self.discarded.held:
            return
        grids, told = list(self.grids), 0
        try:
            for grid in grids:
                told += 1
                try:
                    self._changing = threading.get_ident()
                    grid.suspend()
                finally:
                    self._changing = None
            self.discarded.held = False
            self._make_postponed_calls(grids, calls_seconds)
        except BaseException:
            with contextlib.suppress(Exception):  # what `suspend` said comes first
                self._resume(*grids[:told])
            raise

    def _make_postponed_calls(self, grids: list[SuspendableGrid], calls_seconds: float | None) -> None:
        for grid in grids[:1]:
            with grid.device.current:
                self.discarded.clear(calls_seconds)

    def _resume_all(self, *grids: SuspendableGrid) -> None:
        """Launch grids. One that cannot be launched is a warning: its `resume` tells whoever waits for its tasks."""
        try:
            self._resume(*grids)
        except Exception as error:
            warnings.warn(f"a resident grid could not be launched again: {error}", RuntimeWarning, stacklevel=4)

    def _resume(self, *grids: SuspendableGrid) -> None:
        """Launch grids, once no call is under way that would wait for them.

        All are tried, also after Ctrl-C: whoever waits for their tasks would wait for ever. Then the first error is raised, an
        interruption before any other.
        """
        errors: list[BaseException] = []
        is_waiting = True
        while is_waiting:
            try:
                self._postpone_calls()
                is_waiting = False
            except BaseException as error:
                errors.append(error)
        for grid in grids:
            for _ in range(2):
                try:
                    self._launch(grid)
                    break
                except Exception as error:
                    errors.append(error)
                    break
                except BaseException as error:  # perhaps before anything was done: once more
                    errors.append(error)
        if errors:
            raise next((error for error in errors if not isinstance(error, Exception)), errors[0])

    def _launch(self, grid: SuspendableGrid) -> None:
        try:
            self._changing = threading.get_ident()
            grid.resume()
        finally:
            self._changing = None

    def _postpone_calls(self) -> None:
        """Have calls that would wait for a grid postponed from now on, and wait for those that are under way."""
        with self._flag:
            self.discarded.held = bool(self.grids)
        warn_at = time.monotonic() + _WARN_SECONDS
        while self.discarded.held and self.discarded.under_way:
            time.sleep(_POLL_SECONDS)
            if time.monotonic() > warn_at:
                warn_at = float("inf")
                warnings.warn(
                    "a resident kernel waits to be launched until another thread has freed memory or unloaded a program, "
                    f"which has taken {_WARN_SECONDS:.0f} seconds so far: does a kernel run that long?",
                    RuntimeWarning,
                    stacklevel=2,
                )


@atexit.register
def _suspend_at_exit() -> None:
    """The driver's own exit handlers would wait for the kernels."""
    for residents in list(Residents._of.values()):
        for grid in list(residents.grids):
            with contextlib.suppress(Exception):
                if not grid.device.lost:
                    grid.suspend()
