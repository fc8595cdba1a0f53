"""OpenCL through pyopencl. PoCL from PyPI is the embedded default: a real driver, no GPU needed.

What PoCL needs: a method of compiling (`pocl.py`), a folder (`pocl_folder.py`), a linker (`device.py`), no signals
(`signals.py`), and binaries that are read back after launches (`program.py`). Intel's driver for CPUs from
PyPI is made visible to the loader (`intel.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .device import OpenCLDevice, open_device
from .library import find_platforms, intel_library, list_devices

if TYPE_CHECKING:
    from .requirements import device_needs as device_needs
    from .requirements import hint as hint
    from .requirements import needs as needs

__all__ = [
    "OpenCLDevice",
    "device_needs",
    "find_platforms",
    "hint",
    "intel_library",
    "language",
    "list_devices",
    "needs",
    "open_device",
]

language = "opencl"


def __getattr__(name: str) -> object:
    if name not in ("device_needs", "hint", "needs"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import requirements  # for `kernelkeep doctor`

    return getattr(requirements, name)
