"""The reference device: an interpreter that finds bugs in kernels. It needs no driver, and is slow.

with kk.open_device("reference") as device:
    …                                        # everything as on any device; kk.KernelFault says what is wrong, and where
    device.breakpoints.set(3)                # `breakpoints.py`

device.py       the device: programs, memory, launches
text.py         which kernels a text has, and the typed tree of each
writing/        a tree as Python, with all checks inline
arithmetic.py   the numbers of the kernel language in Python
kernel_code.py  runs a launch: groups, and the phases between barriers
checks.py       what generated code calls when something may be wrong
"""

from __future__ import annotations

import os

from ...errors import DeviceError
from ..base import DeviceInfo
from .breakpoints import Breakpoints, Stop
from .device import BACKEND, ReferenceDevice, device_info

__all__ = ["Breakpoints", "ReferenceDevice", "Stop", "hint", "interprets", "language", "list_devices", "open_device"]

_Folder = str | os.PathLike[str] | None
language = BACKEND
hint = "it needs nothing"
interprets = True


def list_devices(cache_dir: _Folder = None) -> list[DeviceInfo]:
    """The one reference device."""
    return [device_info()]


def open_device(
    index: int | None = None, *, driver_cache_dir: _Folder = None, cache_dir: _Folder = None
) -> ReferenceDevice:
    """A new reference device."""
    if index:
        raise DeviceError(f"there is no device {BACKEND}:{index}: there is one")
    return ReferenceDevice()
