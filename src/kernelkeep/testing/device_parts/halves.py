"""Numbers of 16 bits: they are computed in 32 and rounded after each operation, the same everywhere."""

from __future__ import annotations

import numpy as np

from ...devices.base import Device
from ...programs.portable import Buffer, PortableKernel, Scalar
from .common import GROUP, DevicePart, groups

__all__ = ["HalfTests"]

_EVERY_HALF = np.arange(65536, dtype="u2").view("f2")
_STEP = 7  # not all of them: an interpreter runs this, too
_COMPUTE = PortableKernel(
    "halves",
    params=[Buffer("x", "f2", "r"), Buffer("y", "f2"), Buffer("wide", "f4", "w"), Scalar("a", "f2"), Scalar("n", "i4")],
    body="""int i = kk_global_id(0);
            if (i < n) {
                wide[i] = x[i];
                y[i] = x[i];
                y[i] += 1;
                y[i] = y[i] * a + (x[i] + x[i]);
            }""",
    group=GROUP,
)
_ROUND = PortableKernel(
    "rounded",
    params=[Buffer("x", "f4", "r"), Buffer("y", "f2", "w"), Scalar("n", "i4")],
    body="int i = kk_global_id(0); if (i < n) y[i] = x[i];",
    group=GROUP,
)


class HalfTests(DevicePart):
    """Half precision."""

    def test_halves_are_rounded_after_each_operation(self, device: Device) -> None:
        x = _EVERY_HALF[::_STEP].copy()
        size = len(x)
        given = (x, np.zeros(size, "f2"), np.zeros(size, "f4"), np.float16(2.5), size)
        _, y, wide = self.run(device, _COMPUTE, groups(size), *given)
        with np.errstate(all="ignore"):
            expected = (x + np.float16(1)) * np.float16(2.5) + (x + x)
        np.testing.assert_array_equal(wide, x.astype("f4"))
        np.testing.assert_array_equal(y, expected)

    def test_a_store_rounds_to_the_nearest_even(self, device: Device) -> None:
        finite = np.sort(_EVERY_HALF[np.isfinite(_EVERY_HALF)].astype("f4"))
        middle = ((finite[1:].astype("f8") + finite[:-1]) / 2).astype("f4")
        edges = np.array([65519.99, 65520, 1e6, -1e6, np.inf, -np.inf, np.nan, 1e-9], "f4")
        beside = [np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)]
        x = np.concatenate([one[::_STEP] for one in (middle, *beside)] + [edges])
        _, y = self.run(device, _ROUND, groups(len(x)), x, np.zeros(len(x), "f2"), len(x))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(y, x.astype("f2"))
