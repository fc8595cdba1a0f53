"""What the parts share: a cache in its own folder, and small programs with different results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.lease import Lease
from ...cache.program_cache import ProgramCache
from ...devices.base import Device, Kernel
from ...programs.source import Source
from ..device_parts.common import DevicePart, handwritten

__all__ = ["CachePart", "OpenCache", "adder", "check_adder", "entry_file"]

OpenCache = Callable[..., ProgramCache]


def adder(device: Device, term: object, name: str = "adder", **fields: Any) -> Source:
    """y[i] = a * x[i] + term, in the device's own language."""
    text = handwritten(device.language, f"if (i < n) y[i] = a * x[i] + {term};", name=name)
    return Source(text, name=name, language=device.language, **fields)


def check_adder(device: Device, program: Lease | Kernel, term: int, items: int = 100) -> None:
    """Launch it and compare every element."""
    kernel = program.kernel() if isinstance(program, Lease) else program
    x, y = device.array(np.arange(items, dtype="i4")), device.array(np.zeros(items, "i4"))
    kernel.launch(-(-items // 64), (x, y, np.int32(3), np.int32(items)), 64)
    np.testing.assert_array_equal(y.numpy(), 3 * np.arange(items) + term)


def entry_file(cache: ProgramCache, source: Source) -> Path:
    """The file of a program's entry."""
    (path,) = cache.folder.glob(f"programs/*/*-{cache.key(source).digest}.bin")
    return path


class CachePart(DevicePart):
    """A part of the suite: the device, and caches that are closed at the test's end."""

    refuses_damaged_binaries = True  # PoCL crashes on a cut-off binary of its own

    @pytest.fixture
    def open_cache(self, device: Device, tmp_path: Path) -> Iterator[OpenCache]:
        """Open a cache on the test's own folder, as often as needed."""
        if not device.capabilities.program_binaries:
            pytest.skip("this driver gives no program binaries")
        opened: list[ProgramCache] = []

        def open_one(**settings: Any) -> ProgramCache:
            opened.append(ProgramCache(device, tmp_path / "cache", **settings))
            return opened[-1]

        yield open_one
        for cache in opened:
            cache.close()

    @pytest.fixture
    def cache(self, open_cache: OpenCache) -> ProgramCache:
        """One cache, at first empty."""
        return open_cache()
