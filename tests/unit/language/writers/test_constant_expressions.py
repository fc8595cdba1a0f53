"""WGSL computes constant expressions when it compiles a text, and refuses what overflows; in C the same expressions wrap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.testing import open_or_skip

TABLES = """const int TABLE[4] = {0, 2147483647, 65536, -1};
const uint UNSIGNED[2] = {1u, 5u};
const float FLOATS[3] = {3e38f, 0.0f, INFINITY};
const float LARGE = INFINITY;
int summed(const int v[], int n) { return n > 7 ? v[7] + TABLE[1] : v[0]; }
"""
INTEGERS = """clamp(7, -20, 326) << 31
max(2000000000, 1) * max(2, 3)
min(2147483647, 2147483647) + 1
(x, true) << -1
-max(-2147483647 - 1, -2147483647 - 1)
TABLE[2] * TABLE[2]
TABLE[1] + TABLE[1]
UNSIGNED[0] - UNSIGNED[1]
-UNSIGNED[1]
TABLE[1] << TABLE[2]
TABLE[TABLE[3] + 3]
TABLE[max(5, 3) & 3]
make_int3(2147483647, 1, 1).x + 1
(make_int3(2147483647, 1, 1) + make_int3(1, 1, 1)).x
(make_int3(2147483647, 1, 1) << 4).x
kk_group_size(0) * 2147483647
kk_group_size(0) << 30
(unsigned char)(300 + max(3, 3)) << 31
popcount(2147483647) << 30
clz(1) << 30
(max(1, 1) > 0) << 31
(isnan(1.0f) + 1) << 31
(uint)-1 + (uint)max(-1, -2)
(-2147483647 - 1) / TABLE[3]
(int)(0.0f / 0.0f) << 3
summed(few, 1)
as_int(as_float(0x7f800000))""".splitlines()
FLOATS = """as_float(0x7f800000)
log(0.0f)
exp(1000.0f)
sinh(1000.0f)
rsqrt(0.0f)
3e38f * FLOATS[0]
1.0f / FLOATS[1]
FLOATS[2] - LARGE
make_float3(3e38f, 1, 1).x * make_float3(3e38f, 1, 1).y * 1e30f
(make_float3(3e38f, 1, 1) * make_float3(3e38f, 1, 1)).x
fma(3e38f, 10.0f, 1.0f)
dot(make_float3(3e38f, 3e38f, 1), make_float3(3e38f, 1, 1))
(half)60000.0f * (half)60000.0f
1.0f / 3.0f
LARGE
sqrt(-1.0f)""".splitlines()
PARAMETERS = [kk.Buffer("ints", "i4"), kk.Buffer("floats", "f4")]
BODY = f"""{TABLES}int x = ints[0];
int few[2] = {{1, 2}};
{"".join(f"ints[{at}] = {text};{chr(10)}" for at, text in enumerate(INTEGERS))}\
{"".join(f"floats[{at}] = {text};{chr(10)}" for at, text in enumerate(FLOATS))}\
if (x > 1) ints[1] = x / (max(1, 1) - 1);
"""


def results(spec: str) -> list[list[int | float]]:
    kernel = kk.PortableKernel("constants", PARAMETERS, BODY, 1)
    with open_or_skip(spec) as device, device.build(kernel.source(device)) as program:
        ints = device.array(np.zeros(len(INTEGERS), np.int32))
        floats = device.array(np.zeros(len(FLOATS), np.float32))
        program.kernel("constants").launch(1, (ints, floats))
        return [ints.numpy().tolist(), floats.numpy().tolist()]


@pytest.mark.webgpu
def test_constant_expressions_that_overflow_mean_the_same_with_webgpu() -> None:
    integers, floats = results("reference")
    found_integers, found_floats = results("webgpu")
    assert dict(zip(INTEGERS, found_integers, strict=True)) == dict(zip(INTEGERS, integers, strict=True))
    for text, found, expected in zip(FLOATS, found_floats, floats, strict=True):
        assert np.isclose(found, expected, rtol=1e-6, equal_nan=True), f"{text} is {expected}, not {found}"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("x[0] = max(n, 3) << 31;", "x[0] = f32(max(n, 3) << 31u);"),
        ("x[0] = max(2, 3) << n;", "x[0] = f32(max(kk_runtime_i32(2), 3) << u32(n & 31));"),
        ("x[0] = sqrt(2.0f);", "x[0] = sqrt(kk_runtime_f32(2.0f));"),
        ("x[0] = sqrt(x[1]) * (1.0f / 3.0f);", "x[0] = sqrt(x[1]) * 0.33333334f;"),
        ("const int most = 2147483647; x[0] = most * 2;", "x[0] = f32(-2);"),
        ("int v[2] = {1, 2}; x[0] = v[1] * n;", "x[0] = f32(v[1] * kk_scalars.n);"),
    ],
)
def test_only_constants_are_kept_from_being_computed_early(body: str, line: str, written: Callable[..., str]) -> None:
    assert line.replace("(n", "(kk_scalars.n") in written("wgsl", body)
