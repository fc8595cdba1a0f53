"""What the parts share: a kernel whose order of launches shows in its result, and threads that start together."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from ...devices.array import Array
from ...devices.base import Device, Kernel
from ...programs.portable import Buffer, PortableKernel, Scalar
from ..device_parts.common import GROUP, DevicePart, groups

__all__ = ["AFFINE", "GRID", "HOST", "ITEMS", "DispatchPart", "together"]

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


def together(work: Callable[[int], Any], threads: int = 16) -> list[Any]:
    """Run `work` in so many threads, all starting at once; what one raises is raised here."""
    start = threading.Barrier(threads)
    # Python changes threads every 5 ms, which is many launches: too seldom to meet inside one.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def run(number: int) -> Any:
        start.wait(60)
        return work(number)

    try:
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(run, range(threads)))
    finally:
        sys.setswitchinterval(interval)
