"""What the templates for tensor cores share: when they apply, and on Hopper how many groups compute the tiles.

Hopper's groups take all registers of a multiprocessor, and the groups of a cluster begin together. Beside a kernel that stays
they might never begin, so there others are used.
"""

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
# Multiplications, and tiles of C of 64 × 128: with fewer, a launch is mostly its beginning and end, or most of the GPU is idle.
_FEWEST_HALVES = 1 << 20
_FEWEST_SINGLES = 1 << 27
_FEWEST_TF32 = 1 << 26
_FEWEST_TILES = 32
_FEWEST_ROWS, _FEWEST_COLUMNS = 32, 64  # with fewer, reading A or B is all that counts


def half_kind(device: Device, problem: Mapping[str, Any] | None) -> str | None:
    """The kind of template for 16-bit floats that uses tensor cores; None where there is none for the problem."""
    if problem is None or not _rows_fit(problem, 2) or _work(problem) < _FEWEST_HALVES:
        return None
    if device.capabilities.tile_products and not device.runs_resident:
        return "tensor"
    return "warps" if device.capabilities.warp_products else None


def single_kind(device: Device, problem: Mapping[str, Any] | None, *, tf32: bool) -> str | None:
    """The same for float32."""
    if problem is None or not device.capabilities.tile_products or device.runs_resident or not _rows_fit(problem, 4):
        return None
    tiles = -(-problem["m"] // 64) * -(-problem["n"] // 128)
    is_wide = problem["m"] >= _FEWEST_ROWS and problem["n"] >= _FEWEST_COLUMNS and tiles >= _FEWEST_TILES
    return "tensor" if is_wide and _work(problem) >= (_FEWEST_TF32 if tf32 else _FEWEST_SINGLES) else None


def splits_in_clusters(device: Device) -> bool:
    """Whether groups may share the sums of float32 along k."""
    can = device.capabilities
    # Hopper's tensor cores are so much faster than its float32 arithmetic that three products for one pay. Those of later GPUs
    # with clusters may not be.
    return can.clusters and can.tile_products and not device.runs_resident


def _rows_fit(problem: Mapping[str, Any], itemsize: int) -> bool:
    return all(problem[size] * itemsize % _ROW_BYTES == 0 for size in ("n", "k"))


def _work(problem: Mapping[str, Any]) -> int:
    return int(problem["m"] * problem["n"] * problem["k"])


def fits_alone(shared_bytes: int) -> bool:
    """Whether one group fits on a multiprocessor, and no second: the kernels keep descriptors by multiprocessor."""
    return _MULTIPROCESSOR_BYTES < 2 * shared_bytes <= 2 * _MOST_BYTES


def count_groups(m: int, n: int, rows: int, columns: int, most: int) -> int:
    """Groups for tiles of C, no more than `most` of them."""
    return int(min(-(-m // rows) * -(-n // columns), most))


def are_enough(tiles: int, groups: int) -> bool:
    """Whether tiles keep most of the groups busy; smaller tiles would be more, but each takes more copies for its sums."""
    return 4 * tiles >= 3 * groups
