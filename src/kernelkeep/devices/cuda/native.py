"""The driver's launch functions for the module in C, which calls them without NVIDIA's Python bindings."""

from __future__ import annotations

import ctypes
from functools import cache

from ... import settings


@cache
def launch_addresses() -> dict[str, int] | None:
    """The addresses of the driver's functions that launch; None where the module in C was not built or is not to be used."""
    if not settings.native():
        return None
    try:
        from ..._native import CheckedLaunch  # noqa: F401  one that was built from an older file has none

        driver = ctypes.CDLL("libcuda.so.1")
        names = ("cuLaunchKernel", "cuLaunchCooperativeKernel", "cuGraphLaunch")
        return {name: ctypes.cast(getattr(driver, name), ctypes.c_void_p).value or 0 for name in names}
    except (ImportError, OSError, AttributeError):
        return None
