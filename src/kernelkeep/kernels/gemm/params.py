"""What every gemm template takes, in this order."""

from __future__ import annotations

from ...programs.portable import Buffer, Scalar

PARAMS = (
    Buffer("a", "f4", "r"),
    Buffer("b", "f4", "r"),
    Buffer("c", "f4", "rw"),
    Scalar("alpha", "f4"),
    Scalar("beta", "f4"),
    Scalar("m", "i4"),
    Scalar("n", "i4"),
    Scalar("k", "i4"),
)
