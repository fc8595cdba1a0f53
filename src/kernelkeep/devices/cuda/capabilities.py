"""What a CUDA device can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import Capabilities

if TYPE_CHECKING:
    from .device import CudaDevice


def read_capabilities(device: CudaDevice) -> Capabilities:
    """What the driver says the device can do."""
    attribute = device.driver.CUdevice_attribute

    def read(name: str) -> int:
        return device.attribute(getattr(attribute, f"CU_DEVICE_ATTRIBUTE_{name}"))

    architecture = read("COMPUTE_CAPABILITY_MAJOR"), read("COMPUTE_CAPABILITY_MINOR")
    # Newer architectures copy tiles, too, but multiply them in another way.
    tile_products = architecture == (9, 0) and bool(read("TENSOR_MAP_ACCESS_SUPPORTED"))
    clusters = architecture >= (9, 0) and bool(read("CLUSTER_LAUNCH"))
    cooperative = bool(read("COOPERATIVE_LAUNCH"))
    return Capabilities(
        cooperative=cooperative,
        device_clock=True,
        mapped_ring=bool(read("CAN_MAP_HOST_MEMORY")),
        forward_progress=cooperative,
        float_atomics=True,
        float64=True,
        int64=True,
        int8=True,
        queues=True,
        pinned_memory=True,
        timestamps=True,
        cheap_polling=True,
        tile_products=tile_products,
        warp_products=tile_products or (architecture >= (8, 0) and architecture != (9, 0)),
        clusters=clusters,
        view_alignment=1,
        max_group_items=read("MAX_THREADS_PER_BLOCK"),
        max_group=(read("MAX_BLOCK_DIM_X"), read("MAX_BLOCK_DIM_Y"), read("MAX_BLOCK_DIM_Z")),
        max_grid=(read("MAX_GRID_DIM_X"), read("MAX_GRID_DIM_Y"), read("MAX_GRID_DIM_Z")),
        shared_bytes=read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
    )
