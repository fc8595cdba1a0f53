"""WebGPU: Vulkan, Metal and Direct3D 12 through wgpu-native, headless. Kernels are WGSL."""

from __future__ import annotations

from .listing import find_index, list_devices, open_device
from .requirements import hint, needs

__all__ = ["find_index", "hint", "interfaces", "language", "list_devices", "needs", "open_device"]

language = "wgsl"
interfaces = ("vulkan", "metal", "d3d12")  # all that are asked for by default
