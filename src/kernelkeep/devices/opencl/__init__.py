"""OpenCL through pyopencl. PoCL from PyPI is the embedded default: a real driver, no GPU needed.

PoCL needs care in two places: it needs a linker (`device.py`), and its binaries ripen (`program.py`).
"""

from __future__ import annotations

from .device import OpenCLDevice, open_device
from .library import list_devices

__all__ = ["OpenCLDevice", "list_devices", "open_device"]
