"""The adapters that wgpu-native finds: GPUs, or what stands for one, under Vulkan, Metal, Direct3D 12 or OpenGL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...errors import DeviceError
from .native import native
from .types import cast, new, text_of

# As specs name them, "webgpu:metal", and as WGPUInstanceBackend numbers them.
BACKENDS = {"vulkan": 1 << 0, "metal": 1 << 2, "d3d12": 1 << 3, "opengl": 1 << 1}
_PRIMARY = ("vulkan", "metal", "d3d12")
_BACKEND_TYPES = {4: "d3d12", 5: "metal", 6: "vulkan", 7: "opengl", 8: "opengl"}
_CPU = 3  # WGPUAdapterType_CPU
_INSTANCE_EXTRAS = 0x00030004  # WGPUSType_InstanceExtras
_DEFAULT_FLAGS = 1 << 24  # WGPUInstanceFlag_Default


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
        lib = native().lib
        extras = new("WGPUInstanceExtras *")
        extras.chain.sType = _INSTANCE_EXTRAS
        extras.backends = sum(BACKENDS[name] for name in backends or _PRIMARY)
        extras.flags = _DEFAULT_FLAGS
        descriptor = new("WGPUInstanceDescriptor *")
        descriptor.nextInChain = cast("WGPUChainedStruct *", extras)
        self.raw = lib.wgpuCreateInstance(descriptor)
        if not self.raw:
            raise DeviceError("wgpu-native gave no instance")

    def adapters(self) -> list[Adapter]:
        """Every adapter, GPUs first."""
        ffi, lib = native()
        with _no_complaint_of_wayland():
            count = lib.wgpuInstanceEnumerateAdapters(self.raw, ffi.NULL, ffi.NULL)
            found = new("WGPUAdapter[]", count)
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
    lib = native().lib
    info = new("WGPUAdapterInfo *")
    lib.wgpuAdapterGetInfo(raw, info)
    backend = _BACKEND_TYPES.get(int(info.backendType), "unknown")
    name, vendor, driver = text_of(info.device), text_of(info.vendor), text_of(info.description)
    vendor = vendor or f"vendor {info.vendorID:#06x}"
    is_gpu = int(info.adapterType) != _CPU
    lib.wgpuAdapterInfoFreeMembers(info[0])
    return Adapter(raw, backend, name, vendor, driver, is_gpu)
