"""The types of webgpu.h that are used here, and its strings.

cffi reads the text of a type among everything that the header declares, which takes 20 ms for each. So one text names them all.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, NamedTuple

from .native import native

_NAMES = (
    "WGPUAdapterInfo *",
    "WGPUAdapter[]",
    "WGPUBindGroupDescriptor *",
    "WGPUBindGroupEntry[]",
    "WGPUBindGroupLayoutDescriptor *",
    "WGPUBindGroupLayoutEntry[]",
    "WGPUBindGroupLayout[]",
    "WGPUBufferDescriptor *",
    "WGPUBufferMapCallback",
    "WGPUBufferMapCallbackInfo *",
    "WGPUChainedStruct *",
    "WGPUCommandBuffer[]",
    "WGPUComputePassDescriptor *",
    "WGPUComputePipelineDescriptor *",
    "WGPUDeviceDescriptor *",
    "WGPUDeviceLostCallback",
    "WGPUFeatureName[]",
    "WGPUInstanceDescriptor *",
    "WGPUInstanceExtras *",
    "WGPULimits *",
    "WGPUPassTimestampWrites *",
    "WGPUPipelineLayoutDescriptor *",
    "WGPUQuerySetDescriptor *",
    "WGPUQueueWorkDoneCallback",
    "WGPUQueueWorkDoneCallbackInfo *",
    "WGPURequestDeviceCallback",
    "WGPURequestDeviceCallbackInfo *",
    "WGPUShaderModuleDescriptor *",
    "WGPUShaderSourceWGSL *",
    "WGPUStringView *",
    "WGPUUncapturedErrorCallback",
    "char[]",
    "uint32_t[]",
    "uintptr_t",
    "void *",
)


class _Types(NamedTuple):
    ffi: Any
    by_name: dict[str, Any]


@cache
def _types() -> _Types:
    # An array cannot be an argument; a pointer to one can.
    arguments = ", ".join(name.replace("[]", "(*)[]") for name in _NAMES)
    ffi = native().ffi
    found = ffi.typeof(f"void(*)({arguments})").args
    pairs = zip(_NAMES, found, strict=True)
    return _Types(ffi, {name: kind.item if name.endswith("[]") else kind for name, kind in pairs})


def new(name: str, value: Any = None) -> Any:
    """New memory of a type."""
    ffi, types = _types()
    return ffi.new(types[name], value)


def cast(name: str, value: Any) -> Any:
    """A value as another type."""
    ffi, types = _types()
    return ffi.cast(types[name], value)


def address_of(value: Any) -> int:
    """A pointer, or what a callback was passed on, as a number."""
    return int(cast("uintptr_t", value))


_late: dict[int, BaseException] = {}  # by thread: what a signal's handler raised inside a callback


def callback(name: str, function: Any) -> Any:
    """A function that C can call; it must be kept alive meanwhile.

    C cannot be told of an exception. What a signal's handler raises in it, such as Ctrl-C, is kept for `raise_late`, and the
    function is called again: somebody waits for what it notes.
    """
    ffi, types = _types()

    def called(*values: Any) -> None:
        function(*values)

    def call_again(_kind: Any, error: BaseException, traceback: Any) -> None:
        function(*traceback.tb_frame.f_locals["values"])
        _late[threading.get_ident()] = error

    return ffi.callback(types[name], called, onerror=call_again)


def raise_late() -> None:
    """Raise what a signal's handler raised in a callback that this thread was in."""
    if _late and (error := _late.pop(threading.get_ident(), None)) is not None:
        raise error


def text_of(view: Any) -> str:
    """A WGPUStringView as a str."""
    if not view.data or not view.length:
        return ""
    raw: bytes = native().ffi.buffer(view.data, view.length)[:]
    return raw.decode("utf-8", "replace")


def view_of(text: str) -> tuple[Any, Any]:
    """A WGPUStringView of a text, and the memory to be kept alive while it is used."""
    raw = text.encode()
    memory = new("char[]", raw)
    return new("WGPUStringView *", {"data": memory, "length": len(raw)})[0], memory
