"""kernelkeep keeps GPU compute programs and their state alive: compile once, run forever.

Importing this package loads no GPU library and no NumPy; each name below is loaded at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .devices.array import Array as Array
    from .devices.base import Capabilities as Capabilities
    from .devices.base import Device as Device
    from .devices.base import DeviceInfo as DeviceInfo
    from .devices.base import Fence as Fence
    from .devices.base import Kernel as Kernel
    from .devices.base import Program as Program
    from .devices.fingerprint import Fingerprint as Fingerprint
    from .devices.registry import list_devices as list_devices
    from .devices.registry import open_device as open_device
    from .errors import ArgumentError as ArgumentError
    from .errors import BinaryRejected as BinaryRejected
    from .errors import CheckpointError as CheckpointError
    from .errors import CompileError as CompileError
    from .errors import DeviceError as DeviceError
    from .errors import KernelKeepError as KernelKeepError
    from .errors import OutOfMemory as OutOfMemory
    from .errors import RemoteError as RemoteError
    from .errors import Unsupported as Unsupported
    from .programs.portable import Buffer as Buffer
    from .programs.portable import PortableKernel as PortableKernel
    from .programs.portable import Scalar as Scalar
    from .programs.source import Source as Source

__version__ = "0.1.0"

_HOMES = {
    "ArgumentError": "errors",
    "Array": "devices.array",
    "BinaryRejected": "errors",
    "Buffer": "programs.portable",
    "Capabilities": "devices.base",
    "CheckpointError": "errors",
    "CompileError": "errors",
    "Device": "devices.base",
    "DeviceError": "errors",
    "DeviceInfo": "devices.base",
    "Fence": "devices.base",
    "Fingerprint": "devices.fingerprint",
    "Kernel": "devices.base",
    "KernelKeepError": "errors",
    "LocalMemory": "devices.base",
    "OutOfMemory": "errors",
    "PortableKernel": "programs.portable",
    "Program": "devices.base",
    "RemoteError": "errors",
    "Scalar": "programs.portable",
    "Source": "programs.source",
    "Unsupported": "errors",
    "list_devices": "devices.registry",
    "open_device": "devices.registry",
}

__all__ = [
    "ArgumentError",
    "Array",
    "BinaryRejected",
    "Buffer",
    "Capabilities",
    "CheckpointError",
    "CompileError",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "Fence",
    "Fingerprint",
    "Kernel",
    "KernelKeepError",
    "LocalMemory",
    "OutOfMemory",
    "PortableKernel",
    "Program",
    "RemoteError",
    "Scalar",
    "Source",
    "Unsupported",
    "list_devices",
    "open_device",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kernelkeep' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"kernelkeep.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
