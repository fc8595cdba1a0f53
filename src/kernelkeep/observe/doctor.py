"""What each backend needs, whether it is here, and how to get it: the work behind `kernelkeep doctor`.

The checks stop at the first thing that is missing, because what comes after depends on it. A backend is usable when one
of its devices really compiled and ran a small kernel and the result was right.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..devices.base import DeviceInfo
from ..devices.registry import open_device
from ..kernels.samples import SAXPY
from ..programs.source import Source
from .inventory import backends_of, find_devices
from .samples import run_sample

__all__ = ["BackendHealth", "Check", "diagnose"]

_MESA = "apt-get install libegl1 libegl-mesa0 libgl1-mesa-dri"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `found` says what was seen, `fix` how to get what is missing."""

    what: str
    ok: bool
    found: str
    fix: str = ""


@dataclass(frozen=True)
class BackendHealth:
    """A backend's checks, in the order in which they build on each other."""

    backend: str
    usable: bool
    devices: tuple[DeviceInfo, ...]
    checks: tuple[Check, ...]


def diagnose(spec: str | None = None, *, cache_dir: str | os.PathLike[str] | None = None) -> list[BackendHealth]:
    """Look at every backend, or at the one (or the one device) that `spec` names. Raises for a malformed spec only."""
    return [_examine(backend, spec, cache_dir) for backend in backends_of(spec)]


def _examine(backend: str, spec: str | None, cache_dir: str | os.PathLike[str] | None) -> BackendHealth:
    checks: list[Check] = []
    for check in _NEEDS[backend]():
        checks.append(check)
        if not check.ok:
            return BackendHealth(backend, False, (), tuple(checks))
    try:
        devices = tuple(find_devices(spec or backend))
    except Exception as error:  # whatever a broken driver raises is a finding here, not a crash
        checks.append(Check("a device", False, _sentence(error), _DEVICE_FIX[backend]))
        return BackendHealth(backend, False, (), tuple(checks))
    checks.append(Check("a device", True, ", ".join(info.name for info in devices)))
    if backend == "opencl" and any("portable computing language" in info.driver.lower() for info in devices):
        checks.append(_linker())
        checks.append(_pocl_folder())
    if backend == "opencl":
        checks.extend(_intel_driver(devices))
    runs = [_runs(info, cache_dir) for info in devices]
    return BackendHealth(backend, any(check.ok for check in runs), devices, (*checks, *runs))


def _runs(info: DeviceInfo, cache_dir: str | os.PathLike[str] | None) -> Check:
    what = f"{info.spec} runs a kernel"
    try:
        with open_device(info.spec, cache_dir=cache_dir) as device:
            run = run_sample(device, SAXPY, launches=0)
    except Exception as error:
        return Check(what, False, _sentence(error))
    return Check(what, run.ok, run.problem or "compiled, ran and gave the right result")


def _imports(module: str, package: str, extra: str) -> Check:
    def look() -> str:
        loaded = importlib.import_module(module)
        return f"version {getattr(loaded, '__version__', None) or getattr(loaded, 'VERSION_TEXT', 'unknown')}"

    return _look(f"the Python package {package}", look, f"pip install 'kernelkeep[{extra}]'")


def _look(what: str, look: Callable[[], str], fix: str) -> Check:
    try:
        return Check(what, True, look())
    except Exception as error:  # a half-installed library raises anything: ImportError, OSError, RuntimeError, …
        return Check(what, False, _sentence(error), fix)


def _sentence(error: Exception) -> str:
    # A compiler's or driver's message may run over many lines; the first says what happened.
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _linker() -> Check:
    found = shutil.which("ld")
    if found is None:
        return Check("a linker for PoCL", False, "`ld` is not on the PATH", "apt-get install binutils")
    return Check("a linker for PoCL", True, found)


def _pocl_folder() -> Check:
    from ..devices.opencl.pocl_folder import folder_in_use, require_folder

    def look() -> str:
        require_folder(to_build=True)
        return f"{folder_in_use()}"

    return _look("a folder for PoCL to compile in", look, "free some space there, or set POCL_CACHE_DIR")


def _intel_driver(devices: tuple[DeviceInfo, ...]) -> Iterator[Check]:
    """Intel's driver from PyPI, where it is installed: it needs libraries of a second package, and is not found without."""
    from ..devices.opencl import intel_library

    library = intel_library()
    if library is None:
        return
    what = "Intel's driver for CPUs"
    if any("intel" in info.driver.lower() for info in devices):
        yield Check(what, True, str(library))
        return
    try:
        ctypes.CDLL(str(library))
        found = f"{library} can be loaded, but the OpenCL loader does not find it"
    except OSError as error:
        found = str(error)
    yield Check(what, False, found, "pip install 'kernelkeep[intel]'; unset OCL_ICD_VENDORS")


def _opencl_needs() -> Iterator[Check]:
    yield _imports("pyopencl", "pyopencl", "opencl")

    def platforms() -> str:
        from ..devices.opencl import find_platforms

        return ", ".join(f"{platform.name.strip()} ({platform.version.strip()})" for platform in find_platforms())

    yield _look("an OpenCL driver", platforms, "pip install 'kernelkeep[opencl]'")


def _opengl_needs() -> Iterator[Check]:
    def library() -> str:
        ctypes.CDLL("libEGL.so.1")
        return "libEGL.so.1"

    yield _look("the EGL library", library, _MESA)


def _cuda_needs() -> Iterator[Check]:
    yield _imports("cuda.bindings", "cuda-bindings", "cuda")

    def compiler() -> str:
        from ..devices.cuda import compile_for

        nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
        _, major, minor = nvrtc.nvrtcVersion()
        compile_for(Source('extern "C" __global__ void nothing() {}', "nothing", "cuda"), "sm_80")
        return f"NVRTC {major}.{minor} compiles, which needs no GPU"

    yield _look("the CUDA compiler", compiler, "pip install 'kernelkeep[cuda]'")


_NEEDS: dict[str, Callable[[], Iterator[Check]]] = {
    "cuda": _cuda_needs,
    "opencl": _opencl_needs,
    "opengl": _opengl_needs,
}
_DEVICE_FIX = {
    "cuda": "an NVIDIA GPU and its driver",
    "opencl": "pip install 'kernelkeep[opencl]' brings a driver for the CPU",
    "opengl": _MESA,
}
