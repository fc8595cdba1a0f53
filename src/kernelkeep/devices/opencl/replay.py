"""Command buffers (`cl_khr_command_buffer`): launches and copies that the driver records once.

pyopencl does not know the extension, so its functions are called through ctypes. The extension cannot copy between host and
device: such copies are ordinary commands between two command buffers.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import DeviceError
from ..array import Array
from ..prepared import Prepared
from ..replay import Copy, Replay, Step
from .intel import is_intel_for_cpus
from .prepared import OpenCLPrepared

if TYPE_CHECKING:
    from .device import OpenCLDevice

__all__ = ["OpenCLReplay", "new_replay"]

_EXTENSION = "cl_khr_command_buffer"
_CAPABILITIES = 0x12A9  # CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR
_CAN_SIMULTANEOUS_USE = 1 << 2  # CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR
_FLAGS = 0x1293  # CL_COMMAND_BUFFER_FLAGS_KHR
_SIMULTANEOUS_USE = 1 << 0

# With fewer commands, or with PoCL more, a command buffer is slower than its commands one by one: PoCL's cost of a command
# buffer grows faster than the number of its commands.
_MIN_COMMANDS, _MAX_COMMANDS = 3, 64

_POINTER, _UINT, _SIZE, _STATUS = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_int32


def new_replay(device: OpenCLDevice, steps: Sequence[Step]) -> Replay:
    """Command buffers if the driver has them and records these steps, else a loop.

    A driver may launch what it refuses to record, such as a kernel with `printf`. If it does not, the launch has the better
    error message.
    """
    functions = _functions_of(device.cl, device.cl_device)
    if functions is not None and not _leaks(device):
        try:
            return OpenCLReplay(device, functions, steps)
        except _RefusedError:
            pass
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

    def __init__(self, device: OpenCLDevice, functions: _Functions, steps: Sequence[Step]) -> None:
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
            while (
                copying and copying[0].command_execution_status <= 0
            ):  # collecting an event before that would wait for its copy
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
            except (_RefusedError, device.cl.Error) as error:
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


class _RefusedError(Exception):
    """The driver refused a call; `device.translated` takes it like an error of pyopencl's."""

    def __init__(self, cl: Any, name: str, code: int) -> None:
        super().__init__(f"{name} failed: {cl.status_code.to_string(code, 'error %d')}")
        self.code = code


class _Functions:
    """The extension's functions; `find` gives the address of each."""

    def __init__(self, cl: Any, find: Callable[[bytes], int], *, flags: int, command_properties: bool) -> None:
        self._cl = cl
        self._properties = (ctypes.c_uint64 * 3)(_FLAGS, flags, 0)
        self._none = (None,) if command_properties else ()
        extra = (_POINTER,) if command_properties else ()
        order = (_UINT, _POINTER, _POINTER, _POINTER)  # sync points and a handle, which an in-order queue does not need

        def function(name: str, *kinds: Any, result: Any = _STATUS) -> Any:
            return ctypes.CFUNCTYPE(result, *kinds)(find(name.encode()))

        self._create = function("clCreateCommandBufferKHR", _UINT, _POINTER, _POINTER, _POINTER, result=_POINTER)
        self._finalize = function("clFinalizeCommandBufferKHR", _POINTER)
        self._release = function("clReleaseCommandBufferKHR", _POINTER)
        self._enqueue = function("clEnqueueCommandBufferKHR", _UINT, _POINTER, _POINTER, _UINT, _POINTER, _POINTER)
        self._launch = function(
            "clCommandNDRangeKernelKHR", *(_POINTER,) * 4, _UINT, _POINTER, _POINTER, _POINTER, *order
        )
        self._copy = function(
            "clCommandCopyBufferKHR", _POINTER, _POINTER, *extra, _POINTER, _POINTER, _SIZE, _SIZE, _SIZE, *order
        )

    def create(self, queue: int) -> int:
        status = _STATUS()
        recorded = self._create(1, ctypes.byref(_POINTER(queue)), self._properties, ctypes.byref(status))
        if not recorded or status.value:
            raise _RefusedError(self._cl, "clCreateCommandBufferKHR", status.value)
        return int(recorded)

    def record_launch(self, recorded: int, kernel: int, items: Sequence[int], group: Sequence[int]) -> None:
        sizes = _SIZE * len(items)
        status = self._launch(
            recorded, None, None, kernel, len(items), None, sizes(*items), sizes(*group), 0, None, None, None
        )
        self._check("clCommandNDRangeKernelKHR", status)

    def record_copy(self, recorded: int, target: int, origin: int, nbytes: int) -> None:
        status = self._copy(recorded, None, *self._none, origin, target, 0, 0, nbytes, 0, None, None, None)
        self._check("clCommandCopyBufferKHR", status)

    def finalize(self, recorded: int) -> None:
        self._check("clFinalizeCommandBufferKHR", self._finalize(recorded))

    def enqueue(self, recorded: int) -> None:
        status = self._enqueue(0, None, recorded, 0, None, None)
        if status:
            self._check("clEnqueueCommandBufferKHR", status)

    def release(self, recorded: int) -> None:
        self._release(recorded)

    def _check(self, name: str, status: int) -> None:
        if status:
            raise _RefusedError(self._cl, name, status)


@cache
def _functions_of(cl: Any, device: Any) -> _Functions | None:
    """None if a device has no command buffers, or a revision of the extension that was not tried."""
    if _EXTENSION not in device.extensions.split():
        return None
    try:
        return _find_functions(cl, device)
    except (cl.Error, AttributeError, LookupError, OSError):  # an old OpenCL or pyopencl, or a loader out of reach
        return None


def _find_functions(cl: Any, device: Any) -> _Functions:
    # Tested: 0.9.0 and 0.9.4 (PoCL 3.1 and 6.0), 0.9.5, 0.9.7 and 1.0.0 (Intel's for CPUs). Later revisions get the loop.
    # Commands have properties from 0.9.5 on. Before 1.0 a command buffer can be enqueued again before it is done only if
    # it was created for "simultaneous use", which not every device supports; 1.0 needs only an in-order queue.
    revision = _revision(device)
    if not (0, 9, 0) <= revision < (1, 1, 0):
        raise LookupError(f"revision {revision} is not known")
    # pyopencl's own module leads to the loader that it is linked with.
    loader = ctypes.CDLL(cl._cl.__file__)
    flags = 0
    if revision < (1, 0, 0):
        flags = _SIMULTANEOUS_USE
        capabilities = ctypes.c_uint64()
        ask = _prototype(loader.clGetDeviceInfo, _STATUS, _POINTER, _UINT, _SIZE, _POINTER, _POINTER)
        failed = ask(device.int_ptr, _CAPABILITIES, 8, ctypes.byref(capabilities), None)
        if failed or not capabilities.value & _CAN_SIMULTANEOUS_USE:
            raise LookupError("a command buffer would have to be waited for before it is enqueued again")
    look_up = _prototype(loader.clGetExtensionFunctionAddressForPlatform, _POINTER, _POINTER, ctypes.c_char_p)
    platform = device.platform.int_ptr

    def find(name: bytes) -> int:
        address = look_up(platform, name)
        if not address:
            raise LookupError(name)
        return int(address)

    return _Functions(cl, find, flags=flags, command_properties=revision >= (0, 9, 5))


def _revision(device: Any) -> tuple[int, int, int]:
    for extension in device.extensions_with_version:
        if extension.name == _EXTENSION:
            return extension.version >> 22, extension.version >> 12 & 0x3FF, extension.version & 0xFFF
    raise LookupError(_EXTENSION)


def _prototype(function: Any, result: Any, *kinds: Any) -> Any:
    function.restype, function.argtypes = result, kinds
    return function
