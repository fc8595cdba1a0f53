"""CUDA through cuda-bindings: NVRTC compiles, the driver API runs.

Compiling needs no GPU and no driver (`compile_for`): NVRTC from PyPI compiles for any architecture it knows. Running uses the
device's primary context, so memory of CuPy, PyTorch and JAX can be used without a copy.

What is not needed to begin is imported when it is asked for: opening a device imports most of it while the driver starts.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..info import DeviceInfo
    from .architectures import ahead as ahead
    from .compiler import compile_for as compile_for
    from .device import CudaDevice as CudaDevice
    from .requirements import hint as hint
    from .requirements import needs as needs
    from .toolkit import compiler_version as compiler_version

__all__ = [
    "CudaDevice",
    "ahead",
    "compile_for",
    "compiler_version",
    "hint",
    "language",
    "list_devices",
    "needs",
    "open_device",
]

language = "cuda"

_HOMES = {
    "CudaDevice": "device",
    "ahead": "architectures",
    "compile_for": "compiler",
    "compiler_version": "toolkit",
    "hint": "requirements",
    "needs": "requirements",
}


def open_device(
    index: int | None = None,
    *,
    driver_cache_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
) -> CudaDevice:
    """Open a device by index, the first by default. `driver_cache_dir` has no use here: a cubin is native code."""
    from .start import DriverStart

    with DriverStart(index or 0):
        from .. import meanwhile
        from .bindings import load_bindings
        from .device import open_started

        load_bindings("driver")
        meanwhile.import_wanted()
        return open_started(index or 0, cache_dir)


def list_devices(cache_dir: str | os.PathLike[str] | None = None) -> list[DeviceInfo]:
    """Every CUDA device."""
    from .start import DriverStart

    with DriverStart(None):
        from .driver import list_devices as list_all

        return list_all()


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
