"""What the parts share: a kernel that is as slow as its variant says, and caches with tuning records of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.array import Array
from ...devices.base import Device
from ...programs.portable import Buffer, PortableKernel, Scalar
from ...variants.report import Attempt, TuneReport
from ...variants.space import VariantSpace
from ...variants.template import Template
from ...variants.tuned import Tuned
from ..device_parts.common import GROUP, DevicePart

__all__ = ["BODY", "PARAMS", "PROBLEM", "Listener", "VariantPart", "doubled", "twice"]

PROBLEM = {"n": 4096}
PARAMS = (Buffer("x", "f4", "r"), Buffer("y", "f4", "w"), Scalar("n", "i4"))

# y = 2 x, after a chain of STEPS that no compiler shortens. What it adds in the end is too little to be seen.
BODY = """int i = kk_global_id(0);
if (i < n) {
    uint v = kk_uint(i);
    for (int k = 0; k < STEPS; k = k + 1) v = (v ^ (v >> 7)) * 1664525u + 1013904223u;
    y[i] = 2.0f * x[i] + (v == 12345u ? 1e-9f : 0.0f);
}"""


def doubled(x: Any) -> Any:
    """The reference."""
    return 2 * x


def twice(name: str, steps: Any, body: str = BODY, **settings: Any) -> Tuned:
    """A tuned kernel with one variant for each number of steps. All of them are compiled as the kernel `twice`, so that
    tests that tune it under other names need not compile it again."""
    space = settings.pop("space", None) or VariantSpace(STEPS=steps)
    template = Template(PortableKernel("twice", PARAMS, body, group=GROUP))
    return Tuned(name, template, space, reference=doubled, **settings)


class Listener:
    """Remembers the attempts of a tuning, as it tells of them."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []

    def __call__(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    @property
    def new(self) -> list[dict[str, Any]]:
        """The variants that were tried now."""
        return [dict(attempt.variant) for attempt in self.attempts if not attempt.remembered]


class VariantPart(DevicePart):
    """A part of the suite: programs are compiled once for the class, and each test has records of its own."""

    heavy_steps_on_cpu = 1000

    @pytest.fixture(scope="class")
    @classmethod
    def programs(cls, device: Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramCache]:
        """The cache that the class's tests share. Records in it are told apart by the names of the kernels."""
        with ProgramCache(device, tmp_path_factory.mktemp("programs")) as opened:
            yield opened

    @pytest.fixture
    def open_cache(self, device: Device, tmp_path: Path) -> Iterator[Callable[..., ProgramCache]]:
        """Open a cache on the test's own folder, as often as needed."""
        opened: list[ProgramCache] = []

        def open_one(on: Device | None = None) -> ProgramCache:
            opened.append(ProgramCache(on or device, tmp_path / "cache"))
            return opened[-1]

        yield open_one
        for cache in opened:
            cache.close()

    @classmethod
    def heavy(cls, device: Device) -> int:
        """Steps that take several times as long as one when tuned, and few milliseconds, which is not too slow."""
        return 20_000 if device.info.is_gpu else cls.heavy_steps_on_cpu

    @classmethod
    def heavier(cls, device: Device) -> int:
        """Steps that take several times as long as one in a single call."""
        return 5 * cls.heavy(device)

    @staticmethod
    def endless(device: Device) -> int:
        """Steps that take far too long."""
        if device.info.is_gpu:
            return 40_000_000
        return (
            30_000 if device.capabilities.max_loop_rounds is None else 60_000
        )  # llvmpipe is quick, and ends loops at 65,535

    @staticmethod
    def check_run(tuned: Tuned, cache: ProgramCache, items: int = 4096, **settings: Any) -> None:
        """Run it on NumPy arrays, and compare."""
        x = np.arange(items, dtype="f4")
        found = tuned.run(cache, {"n": items}, x=x, **settings)
        assert isinstance(found, Array)
        np.testing.assert_array_equal(found.numpy(), 2 * x)

    @staticmethod
    def check_failures(report: TuneReport, wanted: dict[str, str], parameter: str = "MODE") -> None:
        """Each variant failed as it should; `wanted` maps the parameter's value to the class."""
        found = {str(attempt.variant[parameter]): attempt.failure for attempt in report.attempts}
        assert found == wanted, str(report)
