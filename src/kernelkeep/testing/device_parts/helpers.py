"""The helpers of a body behave as functions: each argument is evaluated once, and a call is one expression."""

from __future__ import annotations

import numpy as np
import pytest

from ...devices.base import Device
from ...programs.portable import Buffer, PortableKernel, Scalar
from .common import DevicePart

__all__ = ["HelperTests"]

_IDS = ("global_id", "local_id", "group_id", "group_size", "group_count", "global_size")
_ATOMICS = ("add", "sub", "min", "max", "and", "or", "xor", "exchange")


class HelperTests(DevicePart):
    """Whatever a helper is in the language of the device."""

    def test_loads_and_stores_evaluate_their_arguments_once(self, device: Device) -> None:
        kernel = PortableKernel(
            "stream",
            params=[Buffer("x", "f4", "r"), Buffer("y", "f4"), Buffer("at", "i4"), Scalar("n", "i4")],
            body="""#define NEXT(a) kk_load4(a, 4 * k++)
                    kk_shared(float, tile, 16);
                    int k = 0, j = 0;
                    kk_float4 v = kk_load4(x, 4 * k++);
                    kk_store4(y, 4 * j++, v);
                    at[0] = k * 10 + j;
                    kk_store4(y, 4 * j++, kk_load4(x, 4 * k++));
                    at[1] = k * 10 + j;
                    k = 1;
                    kk_store4(tile, 4 * (j -= 2), NEXT(x));
                    at[2] = k * 10 + j;
                    v = kk_load4(tile, k = 0);
                    j += 2;
                    kk_store4(y, 4 * j++, kk_make_float4(v.x, v.y, v.z, x[9 + k++]));
                    at[3] = k * 10 + j;
                    kk_store4(y, 4 * j++, kk_load4(x, kk_int(kk_load4(x, 4 * k++).x)));
                    at[4] = k * 10 + j;
                    y[16] = kk_load4(x, 4 * --k).x + kk_load4(x, 4 * --j - 4).y;
                    at[5] = k * 10 + j;""",
            group=1,
        )
        x = np.arange(16, dtype="f4")
        x[4] = 8  # an index that is read
        _, y, at = self.run(device, kernel, 1, x, np.full(20, -1, "f4"), np.zeros(6, "i4"), 1)
        assert at.tolist() == [11, 22, 20, 13, 24, 13]
        assert y.tolist() == [*x[:4], *x[4:8], *x[4:7], 9, *x[8:12], x[4] + x[9], -1, -1, -1]

    def test_calls_in_an_if_without_braces(self, device: Device) -> None:
        kernel = PortableKernel(
            "branches",
            params=[Buffer("x", "f4", "r"), Buffer("y", "f4"), Buffer("c", "i4"), Scalar("n", "i4")],
            body="""kk_shared(float, tile, 8);
                    if (n > 0) kk_store4(y, 0, kk_load4(x, 0)); else kk_store4(y, 4, kk_load4(x, 0));
                    if (n < 0) kk_store4(y, 8, kk_load4(x, 4));
                    else if (n == 5) kk_store4(tile, 0, kk_load4(x, 4));
                    else y[0] = -2.0f;
                    if (n < 0) kk_atomic_add(c[0], 1); else kk_atomic_sub(c[0], 1);
                    if (n < 0) kk_barrier(); else c[1] = 7;
                    y[8] = tile[0]; y[9] = tile[1]; y[10] = tile[2]; y[11] = tile[3];""",
            group=1,
        )
        x = np.arange(8, dtype="f4") + 1
        _, y, c = self.run(device, kernel, 1, x, np.zeros(12, "f4"), np.zeros(2, "i4"), 5)
        assert y.tolist() == [*x[:4], *[0] * 4, *x[4:]]
        assert c.tolist() == [-1, 7]

    def test_a_fence_in_an_if_without_braces(self, device: Device) -> None:
        if not device.capabilities.fences:
            pytest.skip("this device has no fences between groups")
        body = "if (n < 0) kk_fence(); else c[0] = 7; if (n > 0) kk_fence(); else c[0] = 8;"
        kernel = PortableKernel("fences", params=[Buffer("c", "i4"), Scalar("n", "i4")], body=body, group=1)
        (c,) = self.run(device, kernel, 1, np.zeros(1, "i4"), 5)
        assert c.tolist() == [7]

    @pytest.mark.parametrize(
        "loop",
        [
            "int i = 0; do kk_store4(y, 4 * i, kk_load4(x, 4 * i)); while (++i < 2);",
            "int i; for (i = 0; i < 2; kk_store4(y, 4 * i, kk_load4(x, 4 * i)), i++) c[0] = i;",
            "int i = -1; while (++i < 2) kk_store4(y, 4 * i, kk_load4(x, 4 * i));",
        ],
        ids=["do", "for", "while"],
    )
    def test_calls_in_a_loop_without_braces(self, device: Device, loop: str) -> None:
        # A loop in each kernel: NVIDIA's OpenGL compiler refuses several of them behind branches like those above.
        params = [Buffer("x", "f4", "r"), Buffer("y", "f4"), Buffer("c", "i4")]
        kernel = PortableKernel("loop", params=params, body=loop, group=1)
        x = np.arange(8, dtype="f4") + 1
        _, y, _ = self.run(device, kernel, 1, x, np.zeros(8, "f4"), np.zeros(1, "i4"))
        assert y.tolist() == x.tolist()

    def test_ids_evaluate_their_argument_once(self, device: Device) -> None:
        lines = [f"d = 0; while (d < 3) y[at++] = kk_{name}(d++);" for name in _IDS]
        kernel = PortableKernel(
            "counted",
            params=[Buffer("y", "i4", "w")],
            body="int at = 0, d = 0;\nif (kk_global_id(0) + kk_global_id(1) + kk_global_id(2) == 0) {\n"
            + "\n".join(lines)
            + "\n}",
            group=(2, 3, 4),
        )
        (y,) = self.run(device, kernel, (5, 6, 7), np.full(18, -1, "i4"))
        assert y.reshape(6, 3).tolist() == [[0] * 3] * 3 + [[2, 3, 4], [5, 6, 7], [10, 18, 28]]

    @pytest.mark.parametrize("dtype", ["i4", "u4"])
    def test_atomics_and_conversions_evaluate_their_arguments_once(self, device: Device, dtype: str) -> None:
        calls = [f"y[j++] = kk_atomic_{name}(x[k++], v[m++]);" for name in _ATOMICS]
        calls += ["y[j++] = kk_atomic_cas(x[k++], v[m++], v[m++]);"]
        calls += ["at[0] = j * 10000 + k * 100 + m;"]
        body = "int j = 0, k = 0, m = 0;\n" + "\n".join(calls)
        body += "\nf[0] = kk_float(v[m--]); at[1] = kk_int(f[m++ * 0]); at[2] = kk_int(kk_uint(v[m++])); at[3] = m;"
        kernel = PortableKernel(
            "atoms",
            params=[
                Buffer("x", dtype), Buffer("v", dtype, "r"), Buffer("y", dtype), Buffer("at", "i4"), Buffer("f", "f4"),
            ],
            body=body,
            group=1,
        )  # fmt: skip
        x, v = np.arange(10, 19).astype(dtype), np.array([3, 1, 50, 40, 6, 3, 5, 9, 18, 77, 8], dtype)
        x, _, y, at, f = self.run(device, kernel, 1, x, v, np.zeros(9, dtype), np.zeros(4, "i4"), np.zeros(1, "f4"))
        assert y.tolist() == list(range(10, 19))
        assert x.tolist() == [13, 10, 12, 40, 14 & 6, 15 | 3, 16 ^ 5, 9, 77]
        assert at.tolist() == [9 * 10000 + 9 * 100 + 10, 8, 8, 11]
        assert f[0] == 8
