"""What the parts share: the device under test, and small kernels."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest

from ...devices.array import Array
from ...devices.base import Device, Kernel
from ...programs.languages import find_language
from ...programs.portable import Buffer, PortableKernel, Scalar
from ...programs.source import Source
from ..skipped import open_or_skip

__all__ = ["GROUP", "SAXPY", "DevicePart", "groups", "handwritten", "handwritten_saxpy", "together"]

GROUP = 64

SAXPY = PortableKernel(
    "saxpy",
    params=[Buffer("x", "f4", "r"), Buffer("y", "f4", "rw"), Scalar("a", "f4"), Scalar("n", "i4")],
    body="int i = kk_global_id(0);\nif (i < n) y[i] = a * x[i] + y[i];",
    group=GROUP,
)


def groups(items: int, group: int = GROUP) -> int:
    """How many groups cover `items`."""
    return -(-items // group)


def handwritten(language: str, statement: str, *, name: str = "byhand", kind: str = "int", before: str = "") -> str:
    """A kernel `name(x, y, a, n)` that a user of the language might have written; `before` stands above it."""
    found = find_language(language)
    if not found.handwritten_kernel:
        pytest.skip(f"the language {language} has no handwritten_kernel")
    return found.handwritten(statement, name=name, kind=kind, before=before)


def handwritten_saxpy(language: str) -> Source:
    """saxpy in the device's own language, without a declaration: only reflection can tell what it takes."""
    text = handwritten(language, "if (i < n) y[i] = a * x[i] + y[i];", name="saxpy", kind="float")
    return Source(text, name="saxpy", language=language)


def together(work: Callable[[int], Any], threads: int = 16) -> list[Any]:
    """Run `work` in so many threads, all starting at once; what one raises is raised here."""
    start = threading.Barrier(threads)
    # Python switches threads every 5 ms, which is too rare for two threads to meet inside one launch.
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


class DevicePart:
    """A part of the suite: the device fixture and a few short cuts."""

    backend: ClassVar[str]
    spec: ClassVar[str | None] = None
    interprets = False  # an interpreter that does not say so in `device.info`: it gets small launches as well

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls) -> Iterator[Device]:
        """The device under test, opened once for the class."""
        with open_or_skip(cls.backend, cls.spec) as opened:
            yield opened

    @pytest.fixture(scope="class")
    @classmethod
    def saxpy(cls, device: Device) -> Kernel:
        """saxpy, compiled and loaded."""
        return cls.build(device, SAXPY)

    @classmethod
    def is_interpreter(cls, device: Device) -> bool:
        """Whether each item takes so long that launches are small here."""
        return cls.interprets or device.info.is_interpreter

    @staticmethod
    def build(device: Device, kernel: PortableKernel) -> Kernel:
        """Compile, load, and take the only kernel."""
        return device.load(device.compile(kernel.source(device))).kernel(kernel.name)

    @staticmethod
    def check_saxpy(device: Device, kernel: Kernel, items: int = 1001, group: int | None = None) -> None:
        """Launch a saxpy and compare it with NumPy."""
        host_x = np.arange(items, dtype="f4")
        host_y = np.linspace(-1, 1, items, dtype="f4")
        x, y = device.array(host_x), device.array(host_y)
        kernel.launch(groups(items), (x, y, np.float32(0.5), np.int32(items)), group)
        np.testing.assert_allclose(y.numpy(), np.float32(0.5) * host_x + host_y, rtol=1e-6, atol=1e-6)

    @staticmethod
    def run(device: Device, kernel: PortableKernel, grid: int | tuple[int, ...], *args: Any) -> list[Any]:
        """Build a kernel, launch it once, and give back the arrays among its arguments as NumPy."""
        arguments: Sequence[Any] = [device.array(a) if isinstance(a, np.ndarray) and a.ndim else a for a in args]
        DevicePart.build(device, kernel).launch(grid, tuple(arguments))
        return [a.numpy() for a in arguments if isinstance(a, Array)]
