"""wgpu-native, called through the library and the header that the package `wgpu` ships.

The classes of `wgpu` are not used: they check and wrap every call, start a thread for each device, and have no way to hear that
a device is lost. The functions here are those of webgpu.h.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

from ...errors import DeviceError
from .. import forks

INSTALL = "pip install 'kernelkeep[webgpu]'"
# As specs name them, "webgpu:metal", and as WGPUInstanceBackend numbers them.
BACKENDS = {"vulkan": 1 << 0, "metal": 1 << 2, "d3d12": 1 << 3, "opengl": 1 << 1}
_PRIMARY = ("vulkan", "metal", "d3d12")
_BACKEND_TYPES = {4: "d3d12", 5: "metal", 6: "vulkan", 7: "opengl", 8: "opengl"}
_CPU = 3  # WGPUAdapterType_CPU
_INSTANCE_EXTRAS = 0x00030004  # WGPUSType_InstanceExtras
_DEFAULT_FLAGS = 1 << 24  # WGPUInstanceFlag_Default


class Native(NamedTuple):
    """cffi's two halves of a library: types and functions."""

    ffi: Any
    lib: Any


@cache
def _load() -> Native:
    forks.before_driver("webgpu")
    try:
        from wgpu.backends.wgpu_native import ffi, lib
    except (ImportError, OSError, RuntimeError) as error:
        forks.no_driver("webgpu")
        raise DeviceError(
            f"WebGPU needs wgpu-native, which cannot be loaded ({error}); install it with: {INSTALL}"
        ) from None
    lib.wgpuSetLogLevel(0)  # errors are raised here, and nothing else is said
    return Native(ffi, lib)


def native() -> Native:
    """The library. `DeviceError` where it is missing, or was loaded before this process was forked."""
    forks.check_driver("webgpu")
    return _load()


@cache
def _guarded(name: str) -> tuple[Callable[[int, int, int, int], bool], int] | None:
    try:
        from ..._guard import call
    except ImportError:
        return None
    ffi, lib = native()
    return call, int(ffi.cast("uintptr_t", ffi.addressof(lib, name)))


def call_guarded(name: str, *arguments: Any) -> bool:
    """Call a function that ends the process when the device is lost; False instead, where the C module is built."""
    ffi, lib = native()
    guarded = _guarded(name)
    if guarded is None:
        getattr(lib, name)(*arguments)
        return True
    call, address = guarded
    a, b, c = (int(ffi.cast("uintptr_t", one)) for one in arguments)
    return call(address, a, b, c)


def text_of(view: Any) -> str:
    """A WGPUStringView as a str."""
    if not view.data or not view.length:
        return ""
    raw: bytes = native().ffi.buffer(view.data, view.length)[:]
    return raw.decode("utf-8", "replace")


def view_of(text: str) -> tuple[Any, Any]:
    """A WGPUStringView of a text, and the memory to be kept alive while it is used."""
    ffi = native().ffi
    raw = text.encode()
    memory = ffi.new("char[]", raw)
    return ffi.new("WGPUStringView *", {"data": memory, "length": len(raw)})[0], memory


class Adapter(NamedTuple):
    """A GPU, or what stands for one, under one of the interfaces that wgpu can use."""

    raw: Any
    backend: str  # "vulkan", "metal", "d3d12" or "opengl"
    name: str
    vendor: str
    driver: str
    is_gpu: bool


class Instance:
    """An instance of wgpu-native. Drivers read their environment when it is asked for its adapters."""

    def __init__(self, *backends: str) -> None:
        ffi, lib = native()
        extras = ffi.new("WGPUInstanceExtras *")
        extras.chain.sType = _INSTANCE_EXTRAS
        extras.backends = sum(BACKENDS[name] for name in backends or _PRIMARY)
        extras.flags = _DEFAULT_FLAGS
        descriptor = ffi.new("WGPUInstanceDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", extras)
        self.raw = lib.wgpuCreateInstance(descriptor)
        if not self.raw:
            raise DeviceError("wgpu-native gave no instance")

    def adapters(self) -> list[Adapter]:
        """Every adapter, GPUs first."""
        ffi, lib = native()
        with _no_complaint_of_wayland():
            count = lib.wgpuInstanceEnumerateAdapters(self.raw, ffi.NULL, ffi.NULL)
            found = ffi.new("WGPUAdapter[]", count)
            count = min(count, lib.wgpuInstanceEnumerateAdapters(self.raw, ffi.NULL, found))
        return sorted((_describe(found[at]) for at in range(count)), key=lambda one: not one.is_gpu)

    def close(self, adapters: list[Adapter]) -> None:
        """Give the instance and its adapters back. Devices that were opened stay."""
        _, lib = native()
        for adapter in adapters:
            lib.wgpuAdapterRelease(adapter.raw)
        lib.wgpuInstanceRelease(self.raw)


@contextlib.contextmanager
def _no_complaint_of_wayland() -> Iterator[None]:
    """Mesa looks for a window system, and complains on stderr where this variable is missing."""
    name = "XDG_RUNTIME_DIR"
    if os.name != "posix" or name in os.environ:
        yield
        return
    os.environ[name] = "/nonexistent"
    try:
        yield
    finally:
        os.environ.pop(name, None)


def _describe(raw: Any) -> Adapter:
    ffi, lib = native()
    info = ffi.new("WGPUAdapterInfo *")
    lib.wgpuAdapterGetInfo(raw, info)
    backend = _BACKEND_TYPES.get(int(info.backendType), "unknown")
    name, vendor, driver = text_of(info.device), text_of(info.vendor), text_of(info.description)
    vendor = vendor or f"vendor {info.vendorID:#06x}"
    is_gpu = int(info.adapterType) != _CPU
    lib.wgpuAdapterInfoFreeMembers(info[0])
    return Adapter(raw, backend, name, vendor, driver, is_gpu)


def version() -> str:
    """The version of wgpu-native, which has the compiler of WGSL."""
    number = int(native().lib.wgpuGetVersion())
    return ".".join(str(number >> bits & 0xFF) for bits in (24, 16, 8, 0))
