"""Command buffers (`cl_khr_command_buffer`): launches and copies that the driver records once.

The extension cannot copy between host and device: such copies are ordinary commands between two command buffers.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import DeviceError
from ..array import Array
from ..prepared import Prepared
from ..replay import Copy, Replay, Step
from .command_buffers import CommandBufferFunctions, CommandBufferRefusedError, command_buffer_functions
from .intel import is_intel_for_cpus
from .native_replay import NativeReplay
from .prepared import OpenCLPrepared

if TYPE_CHECKING:
    from .device import OpenCLDevice

# With fewer commands, or with PoCL more, a command buffer is slower than its commands one by one: PoCL's cost of a command
# buffer grows faster than the number of its commands.
_MIN_COMMANDS, _MAX_COMMANDS = 3, 64


def new_replay(device: OpenCLDevice, steps: Sequence[Step]) -> Replay:
    """Command buffers if the driver has them and records these steps, else a loop, in C where that was built.

    A driver may launch what it refuses to record, such as a kernel with `printf`. If it does not, the launch has the better
    error message.
    """
    functions = command_buffer_functions(device.cl, device.cl_device)
    if functions is not None and not _leaks(device):
        try:
            return OpenCLReplay(device, functions, steps)
        except CommandBufferRefusedError:
            pass
    if device.launch_target is not None:
        return NativeReplay(device, device.launch_target, steps)
    return Replay(device, steps)


def _leaks(device: OpenCLDevice) -> bool:
    """Intel's driver for CPUs (2025.2 to at least 2026.2) leaks two kilobytes for each command of each replay."""
    return is_intel_for_cpus(device.cl, device.cl_device)


class OpenCLReplay(Replay):
    """Command buffers, and between them the steps that are not recorded.

    Not recorded are copies from and to the host, and launches whose arguments were ever changed: recording one again
    takes longer than launching it.

    A command buffer keeps the memory and the programs of its commands alive, so it is released as soon as one of them is
    closed or replaced. The replay observes arrays and prepared launches, as the graph does.
    """

    device: OpenCLDevice

    def __init__(self, device: OpenCLDevice, functions: CommandBufferFunctions, steps: Sequence[Step]) -> None:
        self.device = device
        self._functions = functions
        self._steps = list(steps)
        self._lock = threading.Lock()
        self._closed = False
        self._parts: list[int | Step] = []  # an int is the handle of a command buffer
        self._recorded: set[Prepared] = set()  # the launches in command buffers
        self._changing: set[Prepared] = set()  # launches that were changed and are not recorded again
        self._outdated = False  # the parts must be recorded again
        self._copying: deque[Any] = deque()  # events of copies from and to the host, which hold its memory
        self._record_parts()
        for step in self._steps:
            if isinstance(step, Copy):
                for end in step:
                    if isinstance(end, Array):
                        end.add_observer(self)
            else:
                step.add_observer(self)

    def _record_parts(self) -> None:
        """Divide the steps into parts: command buffers and steps that are not recorded."""
        parts: list[int | Step] = []
        recorded: set[Prepared] = set()
        run: list[Step] = []
        try:
            for step in self._steps:
                if isinstance(step, Copy):
                    recordable = all(isinstance(end, Array) for end in step)
                else:
                    recordable = step not in self._changing
                if not recordable or len(run) == _MAX_COMMANDS:
                    self._record(run, parts, recorded)
                    run = []
                (run if recordable else parts).append(step)
            self._record(run, parts, recorded)
        except BaseException:
            self._release(parts)
            raise
        self._release(self._parts)
        self._parts, self._recorded, self._outdated = parts, recorded, False

    def _record(self, run: list[Step], parts: list[int | Step], recorded: set[Prepared]) -> None:
        if len(run) < _MIN_COMMANDS:
            parts += run
            return
        functions = self._functions
        buffer = functions.create(self.device.own_queue.int_ptr)
        parts.append(buffer)
        for step in run:
            if isinstance(step, Copy):
                target, origin = step
                assert isinstance(target, Array) and isinstance(origin, Array)
                memory, read = target.open_handle(), origin.open_handle()
                functions.record_copy(buffer, memory.int_ptr, read.int_ptr, target.nbytes)
            else:
                assert isinstance(step, OpenCLPrepared)
                _, kernel, _values = step.bound
                if kernel is None:
                    step.refuse()
                functions.record_launch(buffer, kernel.int_ptr, step.items, step.group)
                recorded.add(step)
        functions.finalize(buffer)

    def _release(self, parts: list[int | Step]) -> None:
        for part in parts:
            if isinstance(part, int):
                self._functions.release(part)  # the driver keeps it until its launches have run

    def launch(self) -> None:
        device = self.device
        device.check_not_lost()
        queue = device.cl_queue
        with self._lock:
            if self._closed:
                raise DeviceError("this graph was closed or changed by another thread")
            copying = self._copying
            # Events of finished copies only: collecting one earlier would wait for its copy.
            while copying and copying[0].command_execution_status <= 0:
                copying.popleft()
            try:
                if self._outdated:
                    self._record_parts()
                # A command buffer runs only on queues with the properties of the one it was recorded for, and a timer's
                # queue has others. So a timer measures the steps one by one.
                for part in self._parts if queue is device.own_queue else self._steps:
                    if isinstance(part, int):
                        self._functions.enqueue(part)
                    else:
                        self._enqueue(queue, part)
            except (CommandBufferRefusedError, device.cl.Error) as error:
                raise device.translated(error, "launching a graph") from None

    def _enqueue(self, queue: Any, step: Step) -> None:
        if isinstance(step, OpenCLPrepared):
            step.launch_on(queue)
            return
        assert isinstance(step, Copy)
        target, origin = (end.open_handle() if isinstance(end, Array) else end for end in step)
        if all(isinstance(end, Array) for end in step):
            self.device.cl.enqueue_copy(queue, target, origin, byte_count=step.target.nbytes)
        else:
            self._copying.append(self.device.cl.enqueue_copy(queue, target, origin, is_blocking=False))

    def prepared_changed(self, prepared: Prepared) -> None:
        with self._lock:
            self._changing.add(prepared)
            if prepared in self._recorded:
                self._release_parts()

    def revoke(self, reason: str) -> None:
        with self._lock:
            self._release_parts()

    def sharing_changed(self) -> None:
        """Never called: memory of OpenCL is not shared with other libraries."""

    def _release_parts(self) -> None:
        parts, self._parts, self._outdated = self._parts, [], True
        self._recorded.clear()
        self._release(parts)

    def close(self) -> None:
        if self.device.lost:
            return
        with self._lock, contextlib.suppress(Exception):  # the interpreter may be half gone
            self._closed = True
            self._release_parts()
            while self._copying:
                self._copying.popleft().wait()
