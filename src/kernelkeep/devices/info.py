"""What is known about a device: DeviceInfo, Capabilities, MemoryInfo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from ..errors import Unsupported
from ..escaping import escaped


@dataclass(frozen=True)
class DeviceInfo:
    """A device as it is listed, before it is opened."""

    spec: str  # what `kk.open_device` takes, such as opencl:0
    backend: str  # the part of the spec before the colon
    name: str  # as the driver says it
    vendor: str  # as the driver says it
    driver: str  # its name and version
    is_gpu: bool  # False for a CPU or an interpreter
    index: int = 0  # the number among the backend's devices
    memory_bytes: int = 0  # of the device; 0 where the driver does not say
    is_interpreter: bool = False  # far slower than a driver: the last to be chosen, and never silently

    def _repr_html_(self) -> str:
        from .html import device_info_html

        return device_info_html(self)


class DeviceList(list[DeviceInfo]):
    """A list of devices that notebooks show as a table; `str()` has one in each line."""

    def __str__(self) -> str:
        width = max((len(one.spec) for one in self), default=0)
        return "\n".join(f"{one.spec.ljust(width)}  {escaped(one.name)} ({escaped(one.driver)})" for one in self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from .html import devices_html

        return devices_html(self)


class Capabilities(msgspec.Struct, frozen=True):
    """What a device can do; what it cannot is refused by name with `Unsupported`."""

    cooperative: bool = False  # a launch whose groups are all resident and may wait for each other
    device_clock: bool = False  # a kernel can read a clock
    mapped_ring: bool = False  # host memory a running kernel reads and writes while the host does
    forward_progress: bool = False  # groups that are resident all make progress
    fences: bool = True  # kk_fence orders what work-items of different groups see
    float_atomics: bool = False  # 32-bit float add and exchange
    float64: bool = False  # 64-bit floats in kernels
    int64: bool = False  # 64-bit integers in kernels
    int8: bool = False  # 8- and 16-bit integers
    queues: bool = False  # more than one queue
    pinned_memory: bool = False  # host memory the device copies from and to directly
    program_binaries: bool = True  # a compiled program can be kept
    native_binaries: bool = True  # what is kept is the driver's; else a checked text, which the driver compiles again
    ripening_binaries: bool = False  # a binary read back after a launch holds more native code than before
    timestamps: bool = False  # the device tells when work began and ended
    cheap_polling: bool = False  # asking whether work is done takes less than a microsecond or two
    wide_vectors: bool = False  # kernels may use float8 and float16, and gain by it
    tile_products: bool = False  # warp groups multiply tiles in shared memory, where whole tiles are copied to (sm_90a)
    warp_products: bool = False  # warps multiply small tiles in registers (sm_80 and later)
    clusters: bool = False  # groups that share a cluster read each other's shared memory (sm_90 and later)
    view_alignment: int = 0  # launches take views that begin at a multiple of so many bytes; 0: no views of parts
    max_loop_rounds: int | None = None  # loops end, silently, after so many rounds of a work-item
    max_group_items: int = 1024  # work-items in a group, in all
    max_group: tuple[int, int, int] = (1024, 1024, 64)  # work-items in a group, in each dimension
    max_grid: tuple[int, int, int] = (65535, 65535, 65535)  # groups of a launch, in each dimension
    shared_bytes: int = 0  # shared memory of a group

    def _repr_html_(self) -> str:
        from .html import capabilities_html

        return capabilities_html(self)

    def require(self, name: str) -> None:
        """Raise `Unsupported` unless the device has the capability `name`."""
        if not getattr(self, name):
            raise Unsupported(name, f"this device cannot do that: capabilities.{name} is False")


@dataclass(frozen=True)
class MemoryInfo:
    """Device memory; `free_bytes` is None where the driver does not say."""

    total_bytes: int
    free_bytes: int | None
