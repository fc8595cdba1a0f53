"""pyopencl: imports it on demand, lists its devices, and creates kernels quickly."""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path
from typing import Any

from ...errors import DeviceError
from ...installation import install_command
from ...platforms import system
from .. import forks
from ..base import DeviceInfo
from .intel import driver_library, is_intel_for_cpus, visible_to_loader
from .pocl import is_pocl
from .pocl_cpu import name_unknown_cpu
from .pocl_folder import pocl_working_in, remove_unused_folder
from .signals import load_undisturbed


def load_pyopencl() -> Any:
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceError(f"OpenCL needs pyopencl ({error}); install it with: {install_command('opencl')}") from None
    return pyopencl


class _FastLookup(threading.local):
    on = False


_fast_lookup = _FastLookup()


@cache
def install_fast_kernel_lookup() -> None:
    """Have pyopencl create kernels without generating Python code for each, but only inside `new_kernel`.

    The generated code serves `kernel(queue, …)`, which kernelkeep never calls, and takes a millisecond per kernel: longer
    than loading the program. Kernels of other users of pyopencl are created as before.
    """
    import pyopencl

    if not _can_write_to_pytools_folder():
        pyopencl._PYOPENCL_NO_CACHE = True  # else importing its cache of that code would fail
    from pyopencl import invoker

    original = getattr(invoker, "generate_enqueue_and_set_args", None)
    if original is not None:

        def generate(*args: Any, **options: Any) -> Any:
            return (None, None) if _fast_lookup.on else original(*args, **options)

        invoker.generate_enqueue_and_set_args = generate


def _can_write_to_pytools_folder() -> bool:
    """Whether the folder of pytools, on which pyopencl's own cache is built, can be written to."""
    from platformdirs import user_cache_path

    folder = user_cache_path("pytools", "pytools")
    probe = folder / f"kernelkeep-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_bytes(bytes(64 << 10))
        finally:
            probe.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def new_kernel(cl: Any, program: Any, name: str) -> Any:
    _fast_lookup.on = True
    try:
        return cl.Kernel(program, name)
    finally:
        _fast_lookup.on = False


_DESCRIPTORS_TO_LOAD = 16
_loading = threading.Lock()
_intel_added: bool | None = None  # whether we made Intel's driver visible; None until drivers were loaded


def find_platforms(cache_dir: str | os.PathLike[str] | None = None) -> list[Any]:
    """The platforms of the drivers here; `DeviceError` where there is none."""
    return [platform for platform, _ in _load_drivers(cache_dir)]


def _load_drivers(cache_dir: str | os.PathLike[str] | None) -> list[tuple[Any, list[Any]]]:
    """Each platform with its devices. The loader looks for drivers only once in a process, and PoCL for its folder."""
    global _intel_added
    if _intel_added is None:
        _require_descriptors()
    cl = load_pyopencl()
    forks.before_driver("opencl")
    with _loading:
        library = intel_library() if _intel_added is None else None
        with pocl_working_in(cache_dir), visible_to_loader(library) as added:
            try:
                found = load_undisturbed(
                    lambda: [(platform, _devices_of(cl, platform)) for platform in cl.get_platforms()]
                )
            except cl.Error as error:
                forks.no_driver("opencl")
                hint = f"for one on the CPU: {install_command('opencl')}"
                raise DeviceError(f"no OpenCL driver is installed ({error}); {hint}") from None
        if not any(is_pocl(platform) for platform, _ in found):
            remove_unused_folder()
        if _intel_added is None:
            _intel_added = added
    return found


def _require_descriptors() -> None:
    """The loader looks for drivers once: without free descriptors it would find none until the process ends."""
    held: list[int] = []
    try:
        held.append(os.open(os.devnull, os.O_RDONLY | system.OPEN_FLAGS))
        held.extend(os.dup(held[0]) for _ in range(_DESCRIPTORS_TO_LOAD - 1))
    except OSError as error:
        hint = "close files, or raise the limit (ulimit -n)"
        raise DeviceError(
            f"loading OpenCL drivers needs {_DESCRIPTORS_TO_LOAD} file descriptors ({error.strerror}): {hint}"
        ) from None
    finally:
        for descriptor in held:
            os.close(descriptor)


def _devices_of(cl: Any, platform: Any) -> list[Any]:
    try:
        devices = list(platform.get_devices())
    except cl.Error:
        return []  # pyopencl raises for a platform without devices
    if is_pocl(platform):
        for device in devices:
            name_unknown_cpu(device)
    return devices


def intel_library() -> Path | None:
    """Where Intel's driver for CPUs from PyPI is; None where it is not installed."""
    return driver_library(load_pyopencl().__file__)


def find_devices(cache_dir: str | os.PathLike[str] | None = None) -> list[Any]:
    """Every device. Intel's driver from PyPI comes last, so that the others keep their numbers when it is installed."""
    devices = [device for _, found in _load_drivers(cache_dir) for device in found]
    if _intel_added:
        cl = load_pyopencl()
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
    return [info_of(index, device) for index, device in enumerate(find_devices(cache_dir))]
