"""Order of evaluation, statements, helper functions, vectors, atomics and names, run on real devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import kernelkeep as kk
from kernelkeep.devices.base import Device

Array = np.ndarray[Any, Any]
Run = Callable[..., list[Array]]


def test_operands_are_evaluated_from_left_to_right(run: Run) -> None:
    out, memory = run(
        """int bump(int m[], int by) { m[0] += by; return m[0]; }
           int i = 0, k = 0;
           if (kk_global_id(0) != 0) return;
           o[k++] = i++ + i * 10;
           o[k++] = i-- - --i;
           o[k++] = (i = 5) + (i += 2) * i;
           o[k++] = bump(m, 1) - bump(m, 2) * m[0];
           int a, b; a = b = i = 3; o[k++] = a + b * 10 + i * 100;
           o[k++] = (i++, i + 1);
           o[k++] = i > 3 && i++ > 2 ? i : -i;
           o[k++] = i < 3 || (i -= 2) > 0 ? bump(m, 3) : bump(m, 4);
           i = i++ + 1; o[k++] = i;
           i += i++; o[k++] = i;
           o[k] = 9; o[k] += o[k]++; k++;
           m[1] = o[k++] = -4;
           o[k++] = (i, (13 ^ o[++m[2] & 3]) & m[2]--);""",
        o=np.zeros(13, "i4"), m=np.zeros(3, "i4"),
    )  # fmt: skip
    assert out.tolist() == [10, 2, 54, -8, 333, 5, 5, 6, 4, 8, 18, -4, (13 ^ 2) & 1]
    assert memory.tolist() == [6, -4, 0]


def test_loops_and_switches(run: Run) -> None:
    (out,) = run(
        """int next(int m[]) { return m[4] += 1; }
           if (kk_global_id(0) != 0) return;
           for (int p = 0, q = 10; p < q; p++, q--) { if (p == 2) continue; o[0] += p * q; }
           do { if (next(o) % 3 == 0) continue; o[1]++; } while (next(o) < 20 && o[1] != 100);
           int k = 5; while (k-- > 0 && next(o)) { if (k == 1) break; o[2] += k; }
           for (int p = 0; next(o) < 40; p = next(o) + p) { if (p > 60) continue; o[3] += p; }
           for (int v = 0; v < 5; v++)
               switch (v) {
                   case 0: o[5] += 1; case 1: o[5] += 10; break;
                   case 2: { int t = 100; o[5] += t; } default: o[5] += 1000;
               }""",
        o=np.zeros(6, "i4"),
    )  # fmt: skip
    counter = rounds = 0
    while True:
        counter += 1
        rounds += counter % 3 != 0
        counter += 1
        if not counter < 20:
            break
    total, value, step = 0, 5, counter
    while True:
        value, more = value - 1, value > 0
        if not more:
            break
        step += 1
        if value == 1:
            break
        total += value
    place = passed = 0
    while (step := step + 1) < 40:
        passed += place if place <= 60 else 0
        step += 1
        place += step
    assert out.tolist() == [9 + 3 * 7 + 4 * 6, rounds, total, passed, step, 1 + 10 + 10 + 100 + 3 * 1000]


def test_helper_functions_take_buffers_shared_and_local_arrays(run: Run) -> None:
    x = np.random.default_rng(3).random(64).astype("f4")
    _, y, counts = run(
        """struct acc { float sum; int count; };
           const float W[3] = {0.25f, 0.5f, 0.25f};
           struct acc add(struct acc a, float v) { a.sum += v; a.count++; return a; }
           float total(const float v[], int from, int n) { float s = 0; while (n-- > 0) s += v[from + n]; return s; }
           void fill(float v[], int n, float value) { for (int k = 0; k < n; k++) v[k] = value * k; }
           void count(int c[], int at) { kk_atomic_add(c[at], 1); }
           float both(const float v[], const float w[], int i) { return total(v, i, 2) + total(w, i, 2); }
           int who(void) { return kk_global_id(0); }
           kk_shared(float, tile, 66);
           float own[4];
           int i = kk_global_id(0), l = kk_local_id(0);
           fill(own, 4, x[i]);
           tile[l] = x[i]; if (l < 2) tile[64 + l] = 0;
           kk_barrier();
           struct acc a = {0, 0};
           for (int k = 0; k < 3; k++) a = add(a, tile[l + k] * W[k]);
           y[i] = a.sum + a.count + total(own, 0, 4) + both(tile, own, 0) + both(x, x, 1) + who();
           count(c, l % 5);""",
        x=x, y=np.zeros(64, "f4"), c=np.zeros(5, "i4"),
    )  # fmt: skip
    padded = np.concatenate([x, [0, 0]])
    expected = padded[:64] / 4 + padded[1:65] / 2 + padded[2:66] / 4 + 3 + 6 * x
    expected += x[0] + x[1] + x + 2 * (x[1] + x[2]) + np.arange(64)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    assert counts.tolist() == [13, 13, 13, 13, 12]


def test_atomics_on_buffers_and_shared_arrays(run: Run) -> None:
    floats, integers, words, out = run(
        """kk_shared(float, s, 4); kk_shared(int, h, 2, 4);
           int l = kk_local_id(0);
           if (l < 4) { s[l] = 0; h[0][l] = 0; h[1][l] = 0; }
           kk_barrier();
           kk_atomic_add(f[0], 1.0f); kk_atomic_sub(f[1], 2.0f); kk_atomic_min(f[2], -1.0f * l); kk_atomic_max(f[3], l);
           kk_atomic_add(i[0], l); kk_atomic_sub(i[1], 1); kk_atomic_min(i[2], -l); kk_atomic_max(i[3], l);
           kk_atomic_and(i[4], ~(1 << (l & 3))); kk_atomic_or(i[5], 1 << (l & 7)); kk_atomic_xor(i[6], l);
           kk_atomic_cas(u[0], 0u, 7u); if (l == 3) u[1] = kk_atomic_exchange(u[2], 5u);
           kk_atomic_add(s[l & 3], 0.5f); kk_atomic_add(h[l & 1][l & 3], 2);
           kk_barrier();
           if (l < 4) o[l] = s[l] + h[1][l] * 100;""",
        f=np.zeros(4, "f4"), i=np.array([0, 0, 0, 0, 255, 0, 0], "i4"), u=np.array([0, 0, 9], "u4"), o=np.zeros(4, "f4"),
    )  # fmt: skip
    assert floats.tolist() == [64, -128, -63, 63]
    assert integers.tolist() == [2016, -64, -63, 63, 240, 255, 0]
    assert words.tolist() == [7, 9, 5]
    assert out.tolist() == [8, 3208, 8, 3208]


def test_vectors(run: Run) -> None:
    x = np.random.default_rng(4).random(64).astype("f4")
    y, k = run(
        """int i = kk_global_id(0);
           float4 v = kk_load4(x, 4 * i); int4 w = make_int4(i, 2147483647, -3, 4);
           float3 a = v.xyz, b = make_float3(1, 2, 3);
           v.yx = v.zw * 2; v.w += dot(a, b);
           w = w + w * 3; w.xy -= 5; w[1] += 2; w = -(w << 1); int j = i & 3; w[j] = w[(j + 1) & 3] / 3;
           float own[8]; kk_store4(own, 4, v);
           kk_store4(x, 4 * i, kk_load4(own, 4));
           k[i] = w.x ^ w.y ^ w.z ^ w.w;""",
        x=x, k=np.zeros(16, "i4"), group=16,
    )  # fmt: skip
    q = x.reshape(16, 4)
    expected = np.stack([2 * q[:, 3], 2 * q[:, 2], q[:, 2], q[:, 3] + q[:, 0] + 2 * q[:, 1] + 3 * q[:, 2]], 1)
    np.testing.assert_allclose(y.reshape(16, 4), expected, rtol=1e-6)
    for i in range(16):
        w = [-2 * (4 * i - 5), -2 * (-4 - 5 + 2), 24, -32]
        after = w[(i + 1) % 4]
        w[i % 4] = abs(after) // 3 * (1 if after >= 0 else -1)
        assert k[i] == w[0] ^ w[1] ^ w[2] ^ w[3]


def test_words_of_a_target_are_fine_names(run: Run) -> None:
    names = """in out input buffer shared step max var let fn template kernel local threadIdx vec4 main loop new and floor f32
    texture filter clamp sample half_ barrier atomicAdd class this private private_ in_""".split()
    declared = "".join(f"float {name} = {at};\n" for at, name in enumerate(names))
    (out,) = run(
        f"{declared}n -= 2; out_[kk_global_id(0)] = {' + '.join(names)} + sqrt(4.0f) + min(n, 3);",
        out_=np.zeros(64, "f4"),
        scalars={"n": 5},
    )
    assert (out == sum(range(len(names))) + 2 + 3).all()


def test_parts_of_arrays_and_addresses_of_variables(run: Run) -> None:
    x = np.random.default_rng(5).random(64).astype("f4")
    y, c, u = run(
        """float total(const float v[], int n) { float s = 0; for (int i = 0; i < n; i++) s += v[i]; return s; }
           float deep(const float v[], int n) { return total(v + 1, n) + total(v, 1); }
           void split(float v, float* whole, float* part) { *whole = floor(v); *part = v - *whole; }
           void swap(int p[], int q[]) { int t = p[0]; p[0] = q[0]; q[0] = t; }
           void mark(unsigned char p[], int v) { p[0] = v; p[1] += v; }
           int bump(int p[]) { return kk_atomic_add(p[0], 2); }
           __shared__ float tile[64]; __shared__ int first;
           int i = kk_global_id(0);
           if (i == 0) first = 7;
           tile[i] = x[i];
           float own[8]; for (int k = 0; k < 8; k++) own[k] = k;
           float w, p; split(x[i] * 3, &w, &p);
           if (i == 0) {
               swap(c + 1, c + 2); mark(u + 3, 5); c[5] = bump(c + 4) + bump(&c[6]);
               kk_atomic_store(c[7], kk_atomic_load(c[6]) + 1);
           }
           kk_barrier();
           kk_atomic_add(first, 1);
           kk_barrier();
           x[i] = total(tile + 2, 3) + deep(own + 2, 2) + w + p * 10 + first;""",
        x=x, c=np.arange(8, dtype="i4"), u=np.arange(8, dtype="u1"),
    )  # fmt: skip
    whole = np.floor(x * 3)
    np.testing.assert_allclose(y, x[2:5].sum() + 9 + whole + (x * 3 - whole) * 10 + 71, rtol=1e-5)
    assert c.tolist() == [0, 2, 1, 3, 6, 10, 8, 9]
    assert u.tolist() == [0, 1, 2, 5, 9, 5, 6, 7]


def test_arrays_whose_names_differ_by_underscores(run: Run) -> None:
    """Functions that belong to an array are named after it."""
    bytes_, words, floats, sums = run(
        """int i = kk_global_id(0);
           a[i] = a_[i] + 1; a_[i] = a[i] * 2;
           if (i < 2) { kk_store4(_b, 4 * i, kk_load4(b, 4 * i)); kk_atomic_max(b[8], i * 1.0f); kk_atomic_add(_b[8], 1.0f); }""",
        a=np.zeros(64, "u1"), a_=np.arange(64, dtype="i2"), b=np.arange(9, dtype="f4"), _b=np.zeros(9, "f4"),
    )  # fmt: skip
    assert bytes_.tolist() == list(range(1, 65))
    assert words.tolist() == list(range(2, 130, 2))
    assert floats.tolist() == list(range(9))
    assert sums.tolist() == [*range(8), 2]


def test_an_atomic_load_of_what_is_only_read(device: Device) -> None:
    params = [kk.Buffer("x", "f4", "r"), kk.Buffer("k", "i4", "r"), kk.Buffer("y", "f4")]
    kernel = kk.PortableKernel("loads", params, "y[0] = kk_atomic_load(x[1]) + kk_atomic_load(k[0]);", 1)
    given = [device.array(np.array([1, 2], "f4")), device.array(np.array([3], "i4")), device.array(np.zeros(1, "f4"))]
    with device.build(kernel.source(device)) as program:
        program.kernel("loads").launch(1, tuple(given))
        assert given[2].numpy()[0] == 5


def test_a_switch_over_every_value_before_a_barrier(run: Run) -> None:
    """PoCL 3.0 let all work-items take the same case, where none was left for the default."""
    out, other = run(
        """kk_shared(int, s, 64);
           int l = kk_local_id(0), a = 9, b = 9;
           switch (l & 3) { case 0: a = 1; break; case 1: a = 5; break; case 2: a = l; break; case 3: a = l; break; }
           switch (l & 1) { case 0: default: break; case 1: b = l; break; }
           s[l] = l;
           kk_barrier();
           o[l] = a + 100 * s[l ^ 1]; p[l] = b;""",
        o=np.zeros(64, "i4"), p=np.zeros(64, "i4"),
    )  # fmt: skip
    l = np.arange(64)  # noqa: E741
    assert out.tolist() == (np.choose(l & 3, [1, 5, l, l]) + 100 * (l ^ 1)).tolist()
    assert other.tolist() == np.where(l & 1, l, 9).tolist()


def test_long_integers_are_compared_with_constants(run: Run) -> None:
    """Mesa 22 takes int64_t(i) < 0 for false."""
    (out,) = run(
        """int l = kk_local_id(0); int x = l - 32; long q = x; unsigned v = l;
           o[l] = (q < 0) + 2 * ((long)x > -3) + 4 * (q <= 2147483647L) + 8 * ((unsigned long)v > 5) + (x << (q & 0) << 8L);""",
        o=np.zeros(64, "i4"),
    )
    l = np.arange(64)  # noqa: E741
    x = l - 32
    assert out.tolist() == ((x < 0) + 2 * (x > -3) + 4 + 8 * (l > 5) + (x << 8)).tolist()


def test_vectors_are_negated_and_shifted(run: Run) -> None:
    (out,) = run(
        """int l = kk_local_id(0);
           int4 v = make_int4(l, -l, 7, 1 << l); uint2 u = make_uint2(l, 3);
           v = ~v + (-v << (l & 3)); u = (~u >> 5) * -u;
           o[l] = v.x ^ v.y ^ v.z ^ v.w ^ (int)u.x ^ (int)u.y;""",
        o=np.zeros(64, "i4"),
    )
    l = np.arange(64, dtype="i8")  # noqa: E741
    parts = [l, -l, 0 * l + 7, (1 << (l & 31)).astype("u4").astype("i4").astype("i8")]
    wanted = 0 * l
    for one in parts:
        wanted ^= ~one + ((-one) << (l & 3))
    for one in (l, 0 * l + 3):
        wanted ^= ((~one & 0xFFFFFFFF) >> 5) * -one
    assert out.tolist() == (wanted & 0xFFFFFFFF).astype("u4").view("i4").tolist()


def test_what_an_atomic_subtracts_is_evaluated_once(run: Run) -> None:
    out, floats = run(
        """unsigned char c = 7; float f = 1.5f;
           if (kk_global_id(0) != 0) return;
           kk_atomic_sub(o[0], (int)(c++)); kk_atomic_sub(x[0], f++); kk_atomic_sub(x[1], -f);
           o[1] = c; x[2] = f;""",
        o=np.zeros(2, "i4"), x=np.zeros(3, "f4"),
    )  # fmt: skip
    assert out.tolist() == [-7, 8]
    assert floats.tolist() == [-1.5, 2.5, 2.5]
