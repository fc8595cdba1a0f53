"""What WebGPU needs: the package wgpu, and a driver behind it."""

from __future__ import annotations

from collections.abc import Iterator

from ...installation import install_command
from ..requirements import Check, check
from .native import version


def hint() -> str:
    driver = "a driver for Vulkan: apt-get install mesa-vulkan-drivers; macOS and Windows have theirs"
    return f"{install_command('webgpu')}, and {driver}"


def needs() -> Iterator[Check]:
    yield check("wgpu-native", version, install_command("webgpu"))
