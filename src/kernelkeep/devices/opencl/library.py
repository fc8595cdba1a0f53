"""pyopencl: importing it when it is needed, the devices it finds, and making kernels with it quickly."""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import DeviceError
from .. import forks
from ..base import DeviceInfo
from .intel import driver_library, is_intel_for_cpus, shown_to_loader

__all__ = [
    "find_devices",
    "find_platforms",
    "info_of",
    "intel_library",
    "list_devices",
    "load_pyopencl",
    "new_kernel",
    "teach_pyopencl_quick_kernels",
]


def load_pyopencl() -> Any:
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError(
            f"OpenCL needs pyopencl ({error}); install it with: pip install 'kernelkeep[opencl]'"
        ) from None
    return pyopencl


class _QuickKernels(threading.local):
    on = False


_quick = _QuickKernels()


@cache
def teach_pyopencl_quick_kernels() -> None:
    """Have pyopencl make kernels without generating Python code for each, in the thread and for the moment we ask for it.

    That code serves `kernel(queue, …)`, which is never called here, and takes a millisecond per kernel: more than
    loading the program. Everybody else's kernels are made as ever.
    """
    from pyopencl import invoker

    original = getattr(invoker, "generate_enqueue_and_set_args", None)
    if original is not None:

        def generate(*args: Any, **options: Any) -> Any:
            return (None, None) if _quick.on else original(*args, **options)

        invoker.generate_enqueue_and_set_args = generate


def new_kernel(cl: Any, program: Any, name: str) -> Any:
    _quick.on = True
    try:
        return cl.Kernel(program, name)
    finally:
        _quick.on = False


_loading = threading.Lock()
_intel_added: bool | None = (
    None  # whether our help brought Intel's driver in; None until the loader has looked for drivers
)


def find_platforms() -> list[Any]:
    """The platforms of the drivers here; `DeviceError` where there is none. The loader looks for drivers once in a process."""
    global _intel_added
    cl = load_pyopencl()
    forks.before_driver("opencl")
    with _loading:
        library = intel_library() if _intel_added is None else None
        with shown_to_loader(library) as added:
            try:
                platforms = cl.get_platforms()
            except cl.Error as error:
                forks.no_driver("opencl")
                hint = "for one on the CPU: pip install 'kernelkeep[opencl]'"
                raise DeviceError(f"no OpenCL driver is installed ({error}); {hint}") from None
        if _intel_added is None:
            _intel_added = added
    return list(platforms)


def intel_library() -> Path | None:
    """Where Intel's driver for CPUs from PyPI is; None where it is not installed."""
    return driver_library(load_pyopencl().__file__)


def find_devices() -> list[Any]:
    """Every device. Intel's driver from PyPI comes last, so that the others keep their numbers when it is installed."""
    cl = load_pyopencl()
    devices = []
    for platform in find_platforms():
        try:
            devices.extend(platform.get_devices())
        except cl.Error:
            continue  # a platform without devices says so by failing
    if _intel_added:
        devices.sort(key=lambda device: is_intel_for_cpus(cl, device))
    return devices


def info_of(index: int, device: Any) -> DeviceInfo:
    return DeviceInfo(
        spec=f"opencl:{index}",
        backend="opencl",
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        driver=f"{device.platform.name.strip()} {device.driver_version.strip()}",
        is_gpu=bool(device.type & load_pyopencl().device_type.GPU),
        index=index,
        memory_bytes=device.global_mem_size,
    )


def list_devices(cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """Every device of every platform."""
    return [info_of(index, device) for index, device in enumerate(find_devices())]
