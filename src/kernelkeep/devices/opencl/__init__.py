"""OpenCL through pyopencl. PoCL from PyPI is the embedded default: a real driver, no GPU needed.

PoCL needs care: how it compiles (`pocl.py`), its linker (`device.py`), binaries that ripen (`program.py`). Intel's driver
for CPUs from PyPI has to be shown to the loader (`intel.py`).
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
