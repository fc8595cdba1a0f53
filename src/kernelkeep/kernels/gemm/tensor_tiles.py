"""What the templates for Hopper's tensor cores share: when they apply, and how many groups compute the tiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...devices.base import Device

# The instructions are of this architecture alone, not of those after it; a compiler must be told.
HOPPER = ("--gpu-architecture=sm_90a",)

_ROW_BYTES = 16  # a row begins at a multiple of it
_MULTIPROCESSOR_BYTES = 228 * 1024  # of shared memory
_MOST_BYTES = 227 * 1024 - 1024  # of a group, without what it declares
_SMALL = 1 << 24  # multiplications; below, a launch is mostly its beginning and end


def has_tensor_kind(device: Device, problem: Mapping[str, Any] | None, itemsize: int) -> bool:
    """Whether tensor cores are the way for a problem on a device."""
    if problem is None:
        return False
    m, n, k = problem["m"], problem["n"], problem["k"]
    rows_fit = n * itemsize % _ROW_BYTES == 0 and k * itemsize % _ROW_BYTES == 0
    return device.capabilities.tile_products and rows_fit and m * n * k >= _SMALL


def fits_alone(shared_bytes: int) -> bool:
    """Whether one group fits on a multiprocessor, and no second: the kernels keep descriptors by multiprocessor."""
    return _MULTIPROCESSOR_BYTES < 2 * shared_bytes <= 2 * _MOST_BYTES


def count_groups(m: int, n: int, rows: int, columns: int, most: int, cluster: int = 1) -> int:
    """Groups for tiles of C, no more than `most` of them; always whole clusters."""
    tiles = -(-m // (rows * cluster)) * -(-n // columns) * cluster
    return min(tiles, most - most % cluster)
