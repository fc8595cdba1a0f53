"""What WebGPU needs: the package wgpu, and a driver behind it."""

from __future__ import annotations

from collections.abc import Iterator

from ..requirements import Check, check
from .native import INSTALL, version

hint = f"{INSTALL}, and a driver for Vulkan: apt-get install mesa-vulkan-drivers; macOS and Windows have theirs"


def needs() -> Iterator[Check]:
    yield check("wgpu-native", version, INSTALL)
