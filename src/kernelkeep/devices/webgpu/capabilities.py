"""What a WebGPU device can do."""

from __future__ import annotations

from ..base import Capabilities, DeviceInfo
from .context import Context


def capabilities_of(context: Context, info: DeviceInfo) -> Capabilities:
    """What the limits of the adapter allow."""
    limits = context.limits
    groups = int(limits.maxComputeWorkgroupsPerDimension)
    return Capabilities(
        fences=False,
        float_atomics=True,  # by compare-and-swap
        int8=True,  # portable kernels pack them into words
        timestamps=context.has_timestamps,
        native_binaries=False,
        view_alignment=max(4, int(limits.minStorageBufferOffsetAlignment)),
        max_loop_rounds=None if info.is_gpu else 65_535,  # those of Mesa's software drivers
        max_group_items=int(limits.maxComputeInvocationsPerWorkgroup),
        max_group=(
            int(limits.maxComputeWorkgroupSizeX),
            int(limits.maxComputeWorkgroupSizeY),
            int(limits.maxComputeWorkgroupSizeZ),
        ),
        max_grid=(groups, groups, groups),
        shared_bytes=int(limits.maxComputeWorkgroupStorageSize),
    )
