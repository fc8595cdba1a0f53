"""Nothing is reported on correct kernels, and they compute what NumPy computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.reference import ReferenceDevice
from kernelkeep.kernels import conv2d, gemm
from kernelkeep.testing.strategy_parts.common import SAMPLES


@pytest.fixture(scope="module")
def device() -> Iterator[ReferenceDevice]:
    with ReferenceDevice() as opened:
        yield opened


@pytest.fixture(scope="module")
def cache(device: ReferenceDevice, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kk.ProgramCache]:
    with kk.ProgramCache(device, tmp_path_factory.mktemp("cache")) as opened:
        yield opened


def run(device: ReferenceDevice, body: str, group: Any, grid: Any, **given: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Launch a body with arrays and numbers by name; a name that ends in _ is a buffer that is only written."""
    params: list[kk.Buffer | kk.Scalar] = []
    args: list[Any] = []
    for name, value in given.items():
        if isinstance(value, np.ndarray):
            params.append(kk.Buffer(name, value.dtype.str[1:], "w" if name.endswith("_") else "rw"))
            args.append(device.array(value))
        else:
            params.append(kk.Scalar(name, "f4" if isinstance(value, float) else "i4"))
            args.append(value)
    kernel = kk.PortableKernel("correct", params=params, body=body, group=group)
    device.load(device.compile(kernel.source(device))).kernel().launch(grid, tuple(args))
    return {name: arg.numpy() for name, arg in zip(given, args, strict=True) if isinstance(arg, kk.Array)}


def test_gemm_and_conv2d(cache: kk.ProgramCache) -> None:
    numbers = np.random.default_rng(1)
    a, b = numbers.random((17, 33), "f4"), numbers.random((33, 21), "f4")
    np.testing.assert_allclose(gemm(cache, a, b), a @ b, rtol=1e-5)
    image, weights = numbers.random((1, 2, 9, 9), "f4"), numbers.random((3, 2, 3, 3), "f4")
    found = conv2d(cache, image, weights, padding=1)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    np.testing.assert_allclose(found, np.einsum("ncyxrs,kcrs->nkyx", windows, weights), rtol=1e-4)


@pytest.mark.parametrize("name", SAMPLES)
def test_state_programs(cache: kk.ProgramCache, name: str, tmp_path: Path) -> None:
    sample = SAMPLES[name]
    program = sample.program(min(sample.size, 200))
    iterations = None if sample.iterations is None else min(sample.iterations, 6)
    with kk.run(cache, program, iterations, "redispatch") as done:
        for key, expected in sample.reference(program, iterations).items():
            np.testing.assert_allclose(done.state[key], expected, rtol=1e-5, atol=1e-6)


def test_a_reduction_with_barriers(device: ReferenceDevice) -> None:
    body = """kk_shared(float, s, 16);
        int l = kk_local_id(0), i = kk_global_id(0);
        s[l] = i < n ? x[i] : 0.0f;
        kk_barrier();
        for (int k = 8; k > 0; k /= 2) {
            if (l < k) s[l] += s[l + k];
            kk_barrier();
        }
        if (l == 0) sums_[kk_group_id(0)] = s[0];"""
    x = np.arange(50, dtype="f4")
    found = run(device, body, 16, 4, x=x, sums_=np.zeros(4, "f4"), n=50)["sums_"]
    assert found.tolist() == np.pad(x, (0, 14)).reshape(4, 16).sum(1).tolist()


def test_a_histogram_with_atomics_on_shared_and_global_memory(device: ReferenceDevice) -> None:
    body = """kk_shared(uint, local, 8);
        int l = kk_local_id(0), i = kk_global_id(0);
        if (l < 8) local[l] = 0u;
        kk_barrier();
        if (i < n) kk_atomic_add(local[x[i] & 7], 1u);
        kk_barrier();
        if (l < 8) kk_atomic_add(bins[l], local[l]);"""
    x = np.random.default_rng(2).integers(0, 8, 100).astype("i4")
    found = run(device, body, 32, 4, x=x, bins=np.zeros(8, "u4"), n=100)["bins"]
    assert found.tolist() == np.bincount(x, minlength=8).tolist()


def test_the_group_that_ends_last_adds_up(device: ReferenceDevice) -> None:
    """A fence and an atomic order what groups write."""
    body = """int i = kk_global_id(0);
        part[i] = 2 * i;
        kk_fence(); kk_barrier();
        if (kk_local_id(0) == 0) {
            if (kk_atomic_add(done[0], 1) == kk_group_count(0) - 1) {
                kk_fence();
                int s = 0;
                for (int k = 0; k < kk_global_size(0); k++) s += part[k];
                total_[0] = s;
            }
        }"""
    found = run(device, body, 4, 5, part=np.zeros(20, "i4"), done=np.zeros(1, "i4"), total_=np.zeros(1, "i4"))
    assert found["total_"].tolist() == [2 * sum(range(20))]


def test_all_work_items_may_write_the_same_value(device: ReferenceDevice) -> None:
    found = run(
        device, "if (x[kk_global_id(0)] > 2) found[0] = 1;", 8, 2, x=np.arange(16, dtype="i4"), found=np.zeros(1, "i4")
    )
    assert found["found"].tolist() == [1]


def test_a_hash_may_overflow(device: ReferenceDevice) -> None:
    body = """int i = kk_global_id(0), h = i * 1103515245 + 12345;
        uint u = (uint)i * 2654435761u;
        unsigned char small = h * 33 + i;
        x[(h & 7) * 0 + (unsigned char)(h * 33) * 0 + small * 0 + i] = (int)(u % 8u);"""
    found = run(device, body, 16, 1, x=np.zeros(16, "i4"))["x"]
    assert found.tolist() == [(i * 2654435761 % 2**32) % 8 for i in range(16)]


def test_structs_vectors_arrays_and_helper_functions(device: ReferenceDevice) -> None:
    body = """struct body { float3 place; float mass[2]; };
        struct body moved(struct body b, float by) { b.place.xy += by; b.mass[1] *= 2.0f; return b; }
        float total(const float w[], int n) { float s = 0; for (int k = 0; k < n; k++) s += w[k]; return s; }
        struct body b = {(float3)(1.0f, 2.0f, 3.0f), {4.0f, 5.0f}};
        struct body c = moved(b, 10.0f);
        float w[3] = {c.place.x, c.place.y, c.mass[1]};
        float4 v = (float4)(w[0], w[1], w[2], b.mass[1]);
        v.zw = v.wz; v[0] = v[0] + 0.5f;
        y[0] = total(w, 3); y[1] = v.x; y[2] = v.z; y[3] = v.w; y[4] = dot(v, v);"""
    found = run(device, body, 1, 1, y=np.zeros(5, "f4"))["y"].tolist()
    assert found == [11 + 12 + 10, 11.5, 5, 10, 11.5**2 + 144 + 25 + 100]


def test_a_bool_is_counted_up_to_true(device: ReferenceDevice) -> None:
    found = run(device, "bool b = 0; b++; y[0] = b; b++; y[1] = b--; y[2] = b;", 1, 1, y=np.zeros(3, "i4"))["y"]
    assert found.tolist() == [1, 1, 0]


def test_control_flow(device: ReferenceDevice) -> None:
    body = """int i = kk_global_id(0), s = 0;
        for (int k = 0; k < 10; k++) {
            switch ((k + i) % 5) {
                case 0: s += 1;
                case 1: s += 10; break;
                case 2: continue;
                case 3: if (k > 6) break; s += 100;
                default: s += 1000;
            }
            s += 10000;
        }
        int t = 0; do { t++; if (t == 3) continue; s += t; } while (t < 5 && s > 0);
        while (true) { if (t++ > 7) break; }
        x[i] = s + t;"""

    def expected(i: int) -> int:
        s = 0
        for k in range(10):
            case = (k + i) % 5
            if case == 2:
                continue
            s += 11 if case == 0 else 10 if case == 1 else 0
            if case == 3 and k <= 6:
                s += 1100
            if case == 4:
                s += 1000
            s += 10000
        return s + 1 + 2 + 4 + 5 + 9

    found = run(device, body, 8, 1, x=np.zeros(8, "i4"))["x"]
    assert found.tolist() == [expected(i) for i in range(8)]


def test_a_barrier_in_a_helper_function(device: ReferenceDevice) -> None:
    body = """float neighbour(float t[], int l, float v) {
            t[l] = v; kk_barrier();
            float r = t[(l + 1) % 8]; kk_barrier();
            return r;
        }
        kk_shared(float, tile, 8);
        int l = kk_local_id(0);
        float a = neighbour(tile, l, x[l]);
        y_[l] = neighbour(tile, l, a);"""
    x = np.arange(8, dtype="f4")
    assert run(device, body, 8, 1, x=x, y_=np.zeros(8, "f4"))["y_"].tolist() == np.roll(x, -2).tolist()


def test_shared_variables_and_atomic_loads_and_stores(device: ReferenceDevice) -> None:
    body = """__shared__ int total;
        __local float last;
        int l = kk_local_id(0);
        if (l == 0) { total = 5; kk_atomic_store(x[0], 1); }
        if (l == 7) last = 2.5f;
        kk_barrier();
        kk_atomic_add(total, l);
        kk_barrier();
        x[l + 1] = total + (int)(2.0f * last) + kk_atomic_load(x[0]);"""
    found = run(device, body, 8, 1, x=np.zeros(9, "i4"))["x"]
    assert found.tolist() == [1] + [5 + 28 + 5 + 1] * 8


def test_arrays_from_an_element_on_and_variables_by_address(device: ReferenceDevice) -> None:
    body = """void swap(int* a, int* b) { int t = *a; *a = *b; *b = t; }
        int third(const int a[]) { return a[2] + a[-1]; }
        int through(const int a[]) { return third(a + 1) + third(a); }
        int i = kk_global_id(0), p = i, q = 10 * i, w[6] = {1, 2, 3, 4, 5, 6};
        swap(&p, &q);
        if (i == 0) swap(x + 1, &x[2]);
        y_[3 * i] = p; y_[3 * i + 1] = q; y_[3 * i + 2] = through(w + 1) + third(z + i + 1);"""
    x, z = np.arange(4, dtype="i4"), np.arange(10, 20, dtype="i4")
    found = run(device, body, 4, 1, x=x, z=z, y_=np.zeros(12, "i4"))
    assert found["x"].tolist() == [0, 2, 1, 3]
    assert found["y_"].tolist() == [n for i in range(4) for n in (10 * i, i, (5 + 2) + (4 + 1) + z[i + 3] + z[i])]


def test_an_array_from_an_element_on_ends_where_the_array_ends(device: ReferenceDevice) -> None:
    body = "float last(const float* a, int n) { return a[n - 1]; }\nx[0] = last(x + 3, n);"
    run(device, body, 1, 1, x=np.zeros(8, "f4"), n=5)
    with pytest.raises(kk.KernelFault, match=r"line 1: x\[8\] is out of bounds: x has 8 elements"):
        run(device, body, 1, 1, x=np.zeros(8, "f4"), n=6)
