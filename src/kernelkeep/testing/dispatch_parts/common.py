"""What the parts share: a kernel whose order of launches shows in its result."""

from __future__ import annotations

import numpy as np
import pytest

from ...devices.array import Array
from ...devices.base import Device, Kernel
from ...programs.portable import Buffer, PortableKernel, Scalar
from ..device_parts.common import GROUP, DevicePart, groups

__all__ = ["AFFINE", "GRID", "HOST", "ITEMS", "DispatchPart"]

ITEMS = 257
GRID = groups(ITEMS)
HOST = np.arange(ITEMS, dtype="u4")

# Whole numbers that wrap round, so that any number of launches can be compared exactly; and a · y + b does not commute.
AFFINE = PortableKernel(
    "affine",
    params=[Buffer("y", "u4", "rw"), Scalar("a", "u4"), Scalar("b", "u4"), Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) y[i] = a * y[i] + b;",
    group=GROUP,
)


class DispatchPart(DevicePart):
    """A part of the suite: the device, saxpy, and the kernel that tells orders apart."""

    @pytest.fixture(scope="class")
    @classmethod
    def affine(cls, device: Device) -> Kernel:
        """y = a · y + b, compiled and loaded."""
        return cls.build(device, AFFINE)

    @staticmethod
    def ones_and_zeros(device: Device) -> tuple[Array, Array]:
        """x and y of a saxpy: after it, y is `a` everywhere."""
        return device.array(np.ones(ITEMS, "f4")), device.array(np.zeros(ITEMS, "f4"))
