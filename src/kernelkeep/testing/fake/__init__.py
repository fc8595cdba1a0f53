"""A backend without a driver, for tests.

    from kernelkeep.testing import FakeDevice

    with FakeDevice() as device:
        device.faults.fail("compile")

It comes in by the public door, like any backend, for who wants to open it by name:

    kk.register_backend("fake", "kernelkeep.testing.fake")
"""

from __future__ import annotations

import os

from ...devices.base import DeviceInfo
from ...errors import DeviceError
from ...programs.languages import register_language
from .device import BACKEND, FakeDevice, ahead, device_info
from .faults import Faults, Hang
from .language import LANGUAGE

__all__ = ["FakeDevice", "Faults", "Hang", "ahead", "hint", "language", "list_devices", "open_device"]

_Folder = str | os.PathLike[str] | None
language = LANGUAGE.name
hint = "it needs nothing"


def list_devices(cache_dir: _Folder = None) -> list[DeviceInfo]:
    """The one fake device."""
    return [device_info()]


def open_device(index: int | None = None, *, driver_cache_dir: _Folder = None, cache_dir: _Folder = None) -> FakeDevice:
    """A new fake device."""
    if index:
        raise DeviceError(f"there is no device {BACKEND}:{index}: there is one")
    return FakeDevice()


register_language(LANGUAGE)
