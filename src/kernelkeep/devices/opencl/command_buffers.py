"""The functions of the extension `cl_khr_command_buffer`, which pyopencl does not have, through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

_EXTENSION = "cl_khr_command_buffer"
_CAPABILITIES = 0x12A9  # CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR
_CAN_SIMULTANEOUS_USE = 1 << 2  # CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR
_FLAGS = 0x1293  # CL_COMMAND_BUFFER_FLAGS_KHR
_SIMULTANEOUS_USE = 1 << 0
_POINTER, _UINT, _SIZE, _STATUS = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_size_t, ctypes.c_int32


class CommandBufferRefusedError(Exception):
    """The driver refused a call; `device.translated` takes it like an error of pyopencl's."""

    def __init__(self, cl: Any, name: str, code: int) -> None:
        super().__init__(f"{name} failed: {cl.status_code.to_string(code, 'error %d')}")
        self.code = code


class CommandBufferFunctions:
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
            raise CommandBufferRefusedError(self._cl, "clCreateCommandBufferKHR", status.value)
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
            raise CommandBufferRefusedError(self._cl, name, status)


@cache
def command_buffer_functions(cl: Any, device: Any) -> CommandBufferFunctions | None:
    """None if a device has no command buffers, or a revision of the extension that was not tried."""
    if _EXTENSION not in device.extensions.split():
        return None
    try:
        return _find_functions(cl, device)
    except (cl.Error, AttributeError, LookupError, OSError):  # an old OpenCL or pyopencl, or a loader out of reach
        return None


def _find_functions(cl: Any, device: Any) -> CommandBufferFunctions:
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

    return CommandBufferFunctions(cl, find, flags=flags, command_properties=revision >= (0, 9, 5))


def _revision(device: Any) -> tuple[int, int, int]:
    for extension in device.extensions_with_version:
        if extension.name == _EXTENSION:
            return extension.version >> 22, extension.version >> 12 & 0x3FF, extension.version & 0xFFF
    raise LookupError(_EXTENSION)


def _prototype(function: Any, result: Any, *kinds: Any) -> Any:
    function.restype, function.argtypes = result, kinds
    return function
