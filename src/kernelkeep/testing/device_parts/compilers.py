"""What the compiler of some driver gets wrong where it is written as anybody would: each device must give C's answer."""

from __future__ import annotations

import numpy as np
import pytest

from ...devices.base import Device
from ...programs.portable import Buffer, PortableKernel, Scalar
from .common import GROUP, DevicePart, groups

__all__ = ["CompilerTests"]

_INTS = np.array([2147483647, -1, 5, 7, 100, -77, 3, 1000, 255, 0, -2147483648, 65535], "i4")
_FLOATS = np.array(
    [
        0.0,
        1.5,
        -2.75,
        4294967040.0,
        -4294967040.0,
        2147483648.0,
        -3e9,
        1e10,
        -1e18,
        9.3e18,
        -9.3e18,
        1e30,
        -np.inf,
        np.nan,
    ],
    "f4",
)
_LONGS = np.array(
    [0, 1, 2**31, 2**53 + 1, 2**62 + 2**37 + 1, 2**63 - 1, -1, -(2**40) - 1, -(2**63), 2**63 - 2**38], "i8"
)


def _of(name: str, body: str, **kinds: str) -> PortableKernel:
    params: list[Buffer | Scalar] = [*(Buffer(one, kind) for one, kind in kinds.items()), Scalar("n", "i4")]
    return PortableKernel(name, params, f"int i = kk_global_id(0);\nif (i < n) {{\n{body}\n}}", GROUP)


_DO = _of(
    "do_while", "int d = 0, v = x[i]; do { v = v * 2 + 1; } while (++d < 3 && v < 1000); y[i] = v;", x="i4", y="i4"
)
_COMMA = _of("commas", "int v = x[i]; v = (v >>= 1) || x[9] < 5 ? (x[(i + 1) % n], v) : 3; y[i] = v;", x="i4", y="i4")
_ARRAY = _of(
    "element_as_index", "int t[8] = {0, x[i], 2, i}; y[i] = x[1] ^ x[2 + (t[0] & 3)] ^ t[i & 3];", x="i4", y="i4"
)
_NOT_LESS = _of("not_less", "z[i] = !(x[i] < x[n - 1]) ? 1 : 0; if (!(x[n - 1] >= x[i])) z[i] += 2;", x="f4", z="f4")
_LOOPS = _of(
    "loops",
    "int k = 0; while (x[i] < x[n - 1]) { if (++k > 3) break; } do { if (++k > 9) break; } while (x[i] < x[n - 1]);\n"
    "z[i] = k; if (x[i] < x[n - 1]) {} else z[i] += 100;",
    x="f4", z="f4",
)  # fmt: skip
_SHORTS = _of(
    "shorts",
    "short s = x[i] >> 16; unsigned m = (x[i] & 7) + 1; u[i] = (unsigned)s % m; v[i] = s / m;",
    x="i4",
    u="u4",
    v="u4",
)
_VECTORS = _of(
    "vectors",
    "int2 v = (int2)(x[i], i) % (int2)(2, 1) + (int2)(i, x[i]) / (int2)(1, 2); y[i] = v.x ^ v.y;",
    x="i4",
    y="i4",
)
_TO_LONG = _of(
    "to_long",
    "y[i] = (long)x[i]; u[i] = (unsigned long)x[i]; low[i] = (int)(long)x[i];",
    x="f4",
    y="i8",
    u="u8",
    low="i4",
)
_FROM_LONG = _of(
    "from_long", "unsigned long u = x[i]; y[i] = x[i]; z[i] = u; d[i] = x[i]; e[i] = u;", x="i8", y="f4", z="f4", d="f8", e="f8"
)  # fmt: skip
_DOUBLES = _of(
    "doubles", "d[0] = 0.1; d[1] = 1e30; d[2] = 1.0 / 3; d[3] = 3.141592653589793; d[4] = -62.5; d[5] = 1e-300;", d="f8"
)
_HALVES = _of("halves_and_doubles", "d[i] = h[i]; half a = (double)(i & 63); d[i] += a; h[i] = d[i];", h="f2", d="f8")


class CompilerTests(DevicePart):
    """Loops, commas, arrays and conversions."""

    def test_a_do_loop_runs_once_before_its_conditions(self, device: Device) -> None:
        _, y = self.run(device, _DO, 1, _INTS, np.zeros_like(_INTS), len(_INTS))
        expected = []
        for value in _INTS.tolist():
            for _ in range(3):
                value = (value * 2 + 1 + 2**31) % 2**32 - 2**31
                if value >= 1000:
                    break
            expected.append(value)
        assert y.tolist() == expected

    def test_the_last_value_of_a_comma_counts(self, device: Device) -> None:
        _, y = self.run(device, _COMMA, 1, _INTS, np.zeros_like(_INTS), len(_INTS))
        assert y.tolist() == (_INTS >> 1).tolist()

    def test_an_element_of_an_array_is_an_index(self, device: Device) -> None:
        _, y = self.run(device, _ARRAY, 1, _INTS, np.zeros_like(_INTS), len(_INTS))
        picked = [(0, x, 2, i)[i & 3] for i, x in enumerate(_INTS.tolist())]
        assert y.tolist() == [int(_INTS[1] ^ _INTS[2]) ^ one for one in picked]

    def test_not_less_is_true_of_nan(self, device: Device) -> None:
        x = np.array([1.0, np.nan, 3.0, np.inf, 2.0], "f4")
        _, z = self.run(device, _NOT_LESS, 1, x, np.zeros(5, "f4"), 5)
        assert z.tolist() == [0.0, 3.0, 3.0, 3.0, 1.0]

    def test_a_loop_ends_at_nan(self, device: Device) -> None:
        x = np.array([1.0, np.nan, 3.0, 2.0], "f4")
        _, z = self.run(device, _LOOPS, 1, x, np.zeros(4, "f4"), 4)
        assert z.tolist() == [10.0, 101.0, 101.0, 101.0]

    def test_negative_shorts_are_large_as_unsigned_numbers(self, device: Device) -> None:
        size = len(_INTS)
        _, u, v = self.run(device, _SHORTS, 1, _INTS, np.zeros(size, "u4"), np.zeros(size, "u4"), size)
        large, divisor = (_INTS >> 16).astype("i2").astype("u4"), ((_INTS & 7) + 1).astype("u4")
        np.testing.assert_array_equal(u, large % divisor)
        np.testing.assert_array_equal(v, large // divisor)

    def test_vectors_are_divided_by_element(self, device: Device) -> None:
        _, y = self.run(device, _VECTORS, 1, _INTS, np.zeros_like(_INTS), len(_INTS))
        assert y.tolist() == [
            (int(np.fmod(x, 2)) + i) ^ (abs(x) // 2 * (1 if x >= 0 else -1)) for i, x in enumerate(_INTS.tolist())
        ]

    def test_floats_become_longs(self, device: Device) -> None:
        self._needs_64_bits(device)
        size = len(_FLOATS)
        given = (_FLOATS, np.zeros(size, "i8"), np.zeros(size, "u8"), np.zeros(size, "i4"), size)
        _, y, u, low = self.run(device, _TO_LONG, 1, *given)
        exact = [0 if np.isnan(one) else one if np.isinf(one) else int(one) for one in _FLOATS.tolist()]
        signed = [int(min(max(one, -(2**63)), 2**63 - 1)) for one in exact]
        assert y.tolist() == signed
        assert u.tolist() == [int(min(max(one, 0), 2**64 - 1)) for one in exact]
        assert low.tolist() == [(one + 2**31) % 2**32 - 2**31 for one in signed]

    def test_longs_become_floats(self, device: Device) -> None:
        self._needs_64_bits(device)
        size = len(_LONGS)
        given = (_LONGS, *(np.zeros(size, kind) for kind in ("f4", "f4", "f8", "f8")), size)
        _, y, z, d, e = self.run(device, _FROM_LONG, 1, *given)
        unsigned = _LONGS.astype("u8")
        for found, wanted in ((y, _LONGS), (z, unsigned), (d, _LONGS), (e, unsigned)):
            np.testing.assert_array_equal(found, wanted.astype(found.dtype))

    def test_doubles_are_read_exactly(self, device: Device) -> None:
        self._needs_64_bits(device)
        (d,) = self.run(device, _DOUBLES, 1, np.zeros(6), 1)
        assert d.tolist() == [0.1, 1e30, 1.0 / 3, 3.141592653589793, -62.5, 1e-300]

    def test_halves_become_doubles_and_back(self, device: Device) -> None:
        self._needs_64_bits(device)
        h = (np.arange(300) * 0.37 - 20).astype("f2")
        found, d = self.run(device, _HALVES, groups(300), h, np.zeros(300), 300)
        expected = h.astype("f8") + (np.arange(300) & 63)
        np.testing.assert_array_equal(d, expected)
        np.testing.assert_array_equal(found, expected.astype("f2"))

    @staticmethod
    def _needs_64_bits(device: Device) -> None:
        if not (device.capabilities.int64 and device.capabilities.float64):
            pytest.skip("this device has no 64-bit types")
