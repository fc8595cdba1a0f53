"""Which devices are alike enough that what was fastest on one is a good guess for the other."""

from __future__ import annotations

import platform
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..devices.base import Device

__all__ = ["family_of"]


def family_of(device: Device) -> str:
    """The device's architecture, in words: whatever the driver's version, the same for the same kind of chip."""
    fingerprint = device.fingerprint
    if device.backend == "cuda":
        return f"cuda {fingerprint.architecture}"
    if device.info.is_gpu:
        return f"{device.backend} {fingerprint.vendor} {fingerprint.model}"
    # CPU drivers name the very processor; what decides is the driver and how wide the instructions are.
    driver = "Mesa llvmpipe" if device.backend == "opengl" else re.sub(r"\s*\d.*", "", fingerprint.driver)
    return f"{device.backend} {driver} {platform.machine()} {_vectors()}"


@cache
def _vectors() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    flags = set(found.group(1).split()) if found else set()
    return next((name for name in ("avx512f", "avx2", "avx", "sve", "asimd", "sse2") if name in flags), "")
