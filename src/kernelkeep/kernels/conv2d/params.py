"""What every conv2d template takes, in this order."""

from __future__ import annotations

from ...programs.portable import Buffer, Scalar

__all__ = ["PARAMS"]

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
