"""AMD GPUs, compiled for ahead of time with HIPRTC. Nothing here runs a program: there are no devices.

What is compiled has never run on an AMD GPU. Sources are CUDA C, which HIPRTC takes as HIP, so portable kernels are written as
CUDA C. Inline PTX and what only NVIDIA has do not compile.
"""

from __future__ import annotations

import os
from typing import NoReturn

from ...errors import DeviceError
from ..base import DeviceInfo
from .compiler import ahead
from .requirements import hint, needs

__all__ = ["ahead", "compiles_only", "hint", "language", "list_devices", "needs", "open_device"]

language = "cuda"
compiles_only = True  # and has no devices
_Folder = str | os.PathLike[str] | None
_NO_DEVICES = "hip compiles for AMD GPUs ahead of time (kk.compile_ahead); it has no devices and runs nothing"


def list_devices(cache_dir: _Folder = None) -> list[DeviceInfo]:
    """Always `DeviceError`: this backend compiles and has no devices."""
    raise DeviceError(_NO_DEVICES)


def open_device(index: int | None = None, *, driver_cache_dir: _Folder = None, cache_dir: _Folder = None) -> NoReturn:
    """Always `DeviceError`: this backend compiles and has no devices."""
    raise DeviceError(_NO_DEVICES)
