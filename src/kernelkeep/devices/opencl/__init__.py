"""OpenCL through pyopencl. PoCL from PyPI is the embedded default: a real driver, no GPU needed.

What PoCL needs: a method of compiling (`pocl.py`), a folder (`pocl_folder.py`), a linker (`device.py`), no signals
(`signals.py`), and binaries that are read back after launches (`program.py`). Intel's driver for CPUs from
PyPI is made visible to the loader (`intel.py`).
"""

from __future__ import annotations

from .device import OpenCLDevice, open_device
from .library import find_platforms, intel_library, list_devices
from .requirements import device_needs, hint, needs

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
