"""Every KERNELKEEP_* variable and its default, in one place.

    KERNELKEEP_DEVICE     the device `open_device()` opens, for example "opencl:0" or "cuda"
    KERNELKEEP_REQUIRE    comma-separated backends whose absence fails the tests instead of skipping them

Variables are read when they are asked for, so a program may set them after importing kernelkeep.
"""

from __future__ import annotations

import os

__all__ = ["device_spec", "required_backends"]


def device_spec() -> str | None:
    """The device to open when the caller names none."""
    return os.environ.get("KERNELKEEP_DEVICE") or None


def required_backends() -> frozenset[str]:
    """Backends that must be here: a test run fails without them."""
    names = os.environ.get("KERNELKEEP_REQUIRE", "")
    return frozenset(name.strip() for name in names.split(",") if name.strip())
