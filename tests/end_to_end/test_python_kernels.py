"""Kernels in Python compute what the same kernels in C compute, on every backend that is here."""
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.base import Device
from kernelkeep.programs.python_kernel import PythonKernel
from kernelkeep.testing import open_or_skip

Array = np.ndarray[Any, Any]
TILE = 8
BINS = np.int32(16)
LIMIT = 4.0
IS_GRAY = True


@kk.function
def clamped(i: kk.i4, n: kk.i4) -> kk.i4:
    return min(max(i, 0), n - 1)


@kk.function
def pixel(x: kk.In[kk.f4], row: kk.i4, column: kk.i4, height: kk.i4, width: kk.i4) -> kk.f4:
    return x[clamped(row, height) * width + clamped(column, width)]


@kk.function
def add_to(y: kk.InOut[kk.f4], v: kk.f4) -> None:
    y[0] += v


@kk.kernel(group=64)
def saxpy(x: kk.In[kk.f4], y: kk.InOut[kk.f4], a: kk.f4, n: kk.i4) -> None:
    """Adds a multiple."""
    i = kk.global_id(0)
    if i < n:
        y[i] = a * x[i] + y[i]


@kk.kernel(group=64)
def block_sums(x: kk.In[kk.f4], total: kk.InOut[kk.f4], n: kk.i4) -> None:
    part = kk.shared("f4", 64)
    me = kk.local_id(0)
    s = 0.0
    for i in range(kk.global_id(0), n, kk.global_size(0)):
        s += x[i]
    part[me] = s
    kk.barrier()
    half = 32
    while half > 0:
        if me < half:
            part[me] += part[me + half]
        kk.barrier()
        half //= 2
    if me == 0:
        total[kk.group_id(0)] = part[0]


@kk.kernel(group=(8, 8))
def blur(x: kk.In[kk.f4], y: kk.Out[kk.f4], height: kk.i4, width: kk.i4) -> None:
    row, column = kk.global_id(1), kk.global_id(0)
    if row >= height or column >= width:
        return
    weights = kk.array("f4", [0.25, 0.5, 0.25])
    s = 0.0
    for dy in kk.unroll(range(-1, 2)):
        for dx in range(-1, 2):
            s += weights[dy + 1] * weights[dx + 1] * pixel(x, row + dy, column + dx, height, width)
    y[row * width + column] = s


@kk.kernel(group=64)
def histogram(x: kk.In[kk.u1], counts: kk.InOut[kk.u4], n: kk.i4) -> None:
    own = kk.shared("u4", BINS)
    me = kk.local_id(0)
    if me < BINS:
        own[me] = 0
    kk.barrier()
    i = kk.global_id(0)
    if i < n:
        kk.atomic_add(own[x[i] >> 4], 1)
    kk.barrier()
    if me < BINS:
        kk.atomic_add(counts, me, own[me])


@kk.kernel(group=(TILE, TILE))
def matmul(a: kk.In[kk.f4], b: kk.In[kk.f4], c: kk.Out[kk.f4], n: kk.i4) -> None:
    tile_a = kk.shared("f4", TILE, TILE + 1)
    tile_b = kk.shared("f4", TILE, TILE)
    lx, ly = kk.local_id(0), kk.local_id(1)
    row, column = kk.global_id(1), kk.global_id(0)
    s = 0.0
    for t in range((n + TILE - 1) // TILE):
        ka, kb = t * TILE + lx, t * TILE + ly
        tile_a[ly, lx] = a[row * n + ka] if row < n and ka < n else 0.0
        tile_b[ly][lx] = b[kb * n + column] if kb < n and column < n else 0.0
        kk.barrier()
        for k in kk.unroll(range(TILE)):
            s += tile_a[ly, k] * tile_b[k, lx]
        kk.barrier()
    if row < n and column < n:
        c[row * n + column] = s


@kk.kernel(group=64)
def mandelbrot(rounds: kk.Out[kk.i4], width: kk.i4, n: kk.i4) -> None:
    i = kk.global_id(0)
    if i >= n:
        return
    cx = -2.0 + 3.0 * (i % width) / width
    cy = -1.0 + 2.0 * (i // width) / width
    zx, zy = 0.0, 0.0
    for k in range(50):  # noqa: B007  its last value is used below
        zx, zy = zx * zx - zy * zy + cx, 2 * zx * zy + cy
        if zx**2 + zy**2 > LIMIT:
            break
    else_rounds = k
    rounds[i] = else_rounds


@kk.kernel(group=64)
def to_gray(rgb: kk.In[kk.u1], gray: kk.Out[kk.u1], n: kk.i4) -> None:
    i = kk.global_id(0)
    if i < n:
        if IS_GRAY:
            red, green, blue = rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]
            gray[i] = kk.u1((red * 77 + green * 150 + blue * 29 + 128) >> 8)
        else:
            gray[i] = nothing_of_this_name  # type: ignore[name-defined]  # noqa: F821  a constant decides: never read


@kk.kernel(group=16)
def particles(places: kk.InOut[kk.f4], speeds: kk.InOut[kk.f4], n: kk.i4, dt: kk.f4) -> None:
    i = kk.global_id(0)
    if i < n:
        p = kk.load4(places, 4 * i)
        v = kk.load4(speeds, 4 * i)
        force = -p.xyz * kk.rsqrt(kk.dot(p.xyz, p.xyz) + 0.01)
        v.xyz = v.xyz + dt * force
        p += dt * v
        p.w = kk.length(p.xyz)
        kk.store4(places, 4 * i, p)
        kk.store4(speeds, 4 * i, kk.float4(v.xyz, v.w + 1))


@kk.kernel(group=32)
def scan(x: kk.In[kk.i4], y: kk.Out[kk.i4]) -> None:
    steps = kk.shared("i4", 2, 32)
    me, source = kk.local_id(0), 0
    steps[0, me] = x[me]
    kk.barrier()
    d = 1
    while d < 32:
        target = 1 - source
        steps[target, me] = steps[source, me] + (steps[source, me - d] if me >= d else 0)
        source = target
        d <<= 1
        kk.barrier()
    y[me] = steps[source, me]


@kk.kernel(group=64)
def primes(y: kk.Out[kk.i4]) -> None:
    n = kk.global_id(0)
    is_prime = n > 1
    k = 2
    while k * k <= n and is_prime:
        if not n % k:
            is_prime = False
        k += 1
    y[n] = int(is_prime)


@kk.kernel(group=1)
def collatz(y: kk.InOut[kk.i8], z: kk.Out[kk.f4], start: kk.i4) -> None:
    v: kk.i8 = start
    best = v
    steps = 0
    while True:
        if v == 1:
            break
        steps += 1
        if v % 2 == 0:
            v //= 2
            continue
        v = 3 * v + 1
        best = max(best, v)
    y[0], y[1] = steps, best
    z[0] = math.sqrt(steps) + math.floor(2.75) + math.pi
    add_to(z, 0.5)


C_BODIES = {
    saxpy: "int i = kk_global_id(0); if (i < n) y[i] = a * x[i] + y[i];",
    block_sums: """kk_shared(float, part, 64); int me = kk_local_id(0); float s = 0;
        for (int i = kk_global_id(0); i < n; i += kk_global_size(0)) s += x[i];
        part[me] = s; kk_barrier();
        for (int half_ = 32; half_ > 0; half_ /= 2) { if (me < half_) part[me] += part[me + half_]; kk_barrier(); }
        if (me == 0) total[kk_group_id(0)] = part[0];""",
    blur: """int row = kk_global_id(1), column = kk_global_id(0); if (row >= height || column >= width) return;
        const float w[3] = {0.25f, 0.5f, 0.25f}; float s = 0;
        for (int dy = -1; dy < 2; dy++) for (int dx = -1; dx < 2; dx++) {
            int r = clamp(row + dy, 0, height - 1), c = clamp(column + dx, 0, width - 1);
            s += w[dy + 1] * w[dx + 1] * x[r * width + c]; }
        y[row * width + column] = s;""",
    histogram: "int i = kk_global_id(0); if (i < n) kk_atomic_add(counts[x[i] >> 4], 1u);",
    matmul: """int row = kk_global_id(1), column = kk_global_id(0); if (row >= n || column >= n) return; float s = 0;
        for (int k = 0; k < n; k++) s += a[row * n + k] * b[k * n + column]; c[row * n + column] = s;""",
    mandelbrot: """int i = kk_global_id(0); if (i >= n) return;
        float cx = -2 + 3.0f * (i % width) / width, cy = -1 + 2.0f * (i / width) / width, zx = 0, zy = 0; int k, last = 0;
        for (k = 0; k < 50; k++) { last = k; float t = zx * zx - zy * zy + cx; zy = 2 * zx * zy + cy; zx = t;
            if (zx * zx + zy * zy > 4) break; }
        rounds[i] = last;""",
    to_gray: """int i = kk_global_id(0);
        if (i < n) gray[i] = (unsigned char)((rgb[3 * i] * 77 + rgb[3 * i + 1] * 150 + rgb[3 * i + 2] * 29 + 128) >> 8);""",
    particles: """int i = kk_global_id(0); if (i >= n) return; float4 p = kk_load4(places, 4 * i), v = kk_load4(speeds, 4 * i);
        float3 force = -p.xyz * rsqrt(dot(p.xyz, p.xyz) + 0.01f); v.xyz = v.xyz + dt * force; p += dt * v;
        p.w = length(p.xyz); kk_store4(places, 4 * i, p); kk_store4(speeds, 4 * i, make_float4(v.x, v.y, v.z, v.w + 1));""",
    scan: "int me = kk_global_id(0), s = 0; for (int k = 0; k <= me; k++) s += x[k]; y[me] = s;",
    primes: """int n = kk_global_id(0); bool p = n > 1; for (int k = 2; k * k <= n && p; k++) if (n % k == 0) p = false;
        y[n] = p;""",
    collatz: """long v = start, best = v; int steps = 0;
        while (v != 1) { steps++; if (v % 2 == 0) { v /= 2; continue; } v = 3 * v + 1; best = max(best, v); }
        y[0] = steps; y[1] = best; z[0] = sqrt((float)steps) + 2 + 3.14159265f + 0.5f;""",
}  # fmt: skip

RANDOM = np.random.default_rng(4)
FLOATS = RANDOM.random(1000, dtype="f4")
# For each kernel its grid and its arguments; arrays that it writes are filled with zeros at first.
CASES: dict[PythonKernel, tuple[Any, tuple[Any, ...]]] = {
    saxpy: (16, (FLOATS, np.ones(1000, "f4"), 2.0, 1000)),
    block_sums: (2, (FLOATS, np.zeros(2, "f4"), 1000)),
    blur: ((3, 2), (FLOATS[:300], np.zeros(300, "f4"), 15, 20)),
    histogram: (16, (RANDOM.integers(0, 256, 1000, dtype="u1"), np.zeros(16, "u4"), 1000)),
    matmul: ((3, 3), (FLOATS[:361], FLOATS[361:722], np.zeros(361, "f4"), 19)),
    mandelbrot: (4, (np.zeros(256, "i4"), 16, 256)),
    to_gray: (2, (RANDOM.integers(0, 256, 300, dtype="u1"), np.zeros(100, "u1"), 100)),
    particles: (2, (FLOATS[:80], FLOATS[80:160], 20, 0.25)),
    scan: (1, (RANDOM.integers(-9, 9, 32, dtype="i4"), np.zeros(32, "i4"))),
    primes: (2, (np.zeros(128, "i4"),)),
    collatz: (1, (np.zeros(2, "i8"), np.zeros(1, "f4"), 27)),
}
EXACT = {saxpy, histogram, to_gray, scan, primes}


@pytest.fixture(params=["reference", "opencl", "opengl"], scope="module")
def device(request: pytest.FixtureRequest, pocl: str) -> Iterator[Device]:
    with open_or_skip(request.param, pocl if request.param == "opencl" else None) as device:
        yield device


def results(device: Device, kernel: kk.PortableKernel, grid: Any, given: tuple[Any, ...]) -> list[Array]:
    arrays = [device.array(one.copy()) if isinstance(one, np.ndarray) else one for one in given]
    with device.build(kernel.source(device)) as program:
        program.kernel(kernel.name).launch(grid, tuple(arrays))
        return [one.numpy() for one in arrays if isinstance(one, kk.Array)]


@pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.name)
def test_python_computes_what_c_computes(device: Device, kernel: PythonKernel) -> None:
    in_c = kk.PortableKernel(kernel.name, kernel.params, C_BODIES[kernel], kernel.group)
    grid, given = CASES[kernel]
    try:
        expected = results(device, in_c, grid, given)
    except kk.Unsupported as missing:
        pytest.skip(str(missing))
    found = results(device, kernel, grid, given)
    assert any(
        (one != two).any() for one, two in zip(found, [a for a in given if isinstance(a, np.ndarray)], strict=True)
    )
    for one, two in zip(found, expected, strict=True):
        if kernel in EXACT or one.dtype.kind != "f":
            assert one.tolist() == two.tolist()
        else:
            np.testing.assert_allclose(one, two, rtol=2e-6, atol=1e-6)
