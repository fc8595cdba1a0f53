"""wgpu-native, called through the library and the header that the package `wgpu` ships.

The classes of `wgpu` are not used: they check and wrap every call, start a thread for each device, and have no way to hear that
a device is lost. The functions here are those of webgpu.h.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ...errors import DeviceError
from ...installation import install_command
from .. import forks


class Native(NamedTuple):
    """cffi's two halves of a library: types and functions."""

    ffi: Any
    lib: Any


@cache
def _load() -> Native:
    forks.before_driver("webgpu")
    try:
        from wgpu.backends.wgpu_native import ffi, lib
    except (ImportError, OSError, RuntimeError) as error:
        forks.no_driver("webgpu")
        raise DeviceError(
            f"WebGPU needs wgpu-native, which cannot be loaded ({error}); install it with: {install_command('webgpu')}"
        ) from None
    lib.wgpuSetLogLevel(0)  # errors are raised here, and nothing else is said
    return Native(ffi, lib)


def native() -> Native:
    """The library. `DeviceError` where it is missing, or was loaded before this process was forked."""
    forks.check_driver("webgpu")
    return _load()


def version() -> str:
    """The version of wgpu-native, which has the compiler of WGSL."""
    number = int(native().lib.wgpuGetVersion())
    return ".".join(str(number >> bits & 0xFF) for bits in (24, 16, 8, 0))
