"""What every conv2d template takes, in this order, and what is compiled into all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...programs.portable import Buffer, Scalar

PARAMS = (
    Buffer("x", "f4", "r"),
    Buffer("weights", "f4", "r"),
    Buffer("y", "f4", "w"),
    Scalar("c", "i4"),
    Scalar("h", "i4"),
    Scalar("w", "i4"),
    Scalar("k", "i4"),
    Scalar("oh", "i4"),
    Scalar("ow", "i4"),
    Scalar("pad_y", "i4"),
    Scalar("pad_x", "i4"),
)


def filter_constants(problem: Mapping[str, Any]) -> dict[str, int]:
    """The filter's size and the strides."""
    return {
        "KERNEL_H": problem["r"],
        "KERNEL_W": problem["s"],
        "STRIDE_Y": problem["stride_y"],
        "STRIDE_X": problem["stride_x"],
    }
