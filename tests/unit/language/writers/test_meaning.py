"""What a body computes is the same on every target: integers as C has them, without what C leaves undefined."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.base import Device
from kernelkeep.language.writers import TARGETS

Array = np.ndarray[Any, Any]
Run = Callable[..., list[Array]]

EXTREMES = np.array([2**31 - 1, -(2**31), -1, 0, 1, -7, 255, 65536] * 8, "i4")
OTHERS = np.array([1, 3, -5, 7, 2**31 - 1, 2, -(2**31), 33] * 8, "i4")[::-1].copy()


def c_quotient(a: Array, b: Array) -> Array:
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    return np.array([abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) for p, q in pairs], "i8")


def test_integers_wrap_divide_and_shift_as_in_c(run: Run) -> None:
    divisor = np.where((OTHERS == 0) | (OTHERS == -1), 3, OTHERS)
    _, _, out = run(
        """int i = kk_global_id(0); int x = a[i], y = b[i], d = y == 0 || y == -1 ? 3 : y;
           o[8 * i] = x + y; o[8 * i + 1] = x - y; o[8 * i + 2] = x * y; o[8 * i + 3] = -x;
           o[8 * i + 4] = x / d; o[8 * i + 5] = x % d; o[8 * i + 6] = x << y; o[8 * i + 7] = x >> y;""",
        a=EXTREMES, b=OTHERS, o=np.zeros(512, "i4"),
    )  # fmt: skip
    quotient = c_quotient(EXTREMES, divisor)
    remainder = EXTREMES.astype("i8") - quotient * divisor
    shift = OTHERS & 31
    with np.errstate(over="ignore"):
        expected = (
            EXTREMES + OTHERS, EXTREMES - OTHERS, EXTREMES * OTHERS, -EXTREMES, quotient.astype("i4"), remainder.astype("i4"),
            EXTREMES << shift, EXTREMES >> shift,
        )  # fmt: skip
    for at, column in enumerate(expected):
        assert out[at::8].tolist() == column.tolist(), at


def test_no_compiler_takes_overflow_for_impossible(run: Run) -> None:
    _, out = run(
        """int i = kk_global_id(0), x = a[i], rounds = 0;
           o[4 * i] = x + 1 > x; o[4 * i + 1] = x * 2 / 2 == x; x++; o[4 * i + 2] = x;
           for (int k = 2147483640; k > 0; k++) rounds++;
           o[4 * i + 3] = rounds;""",
        a=EXTREMES, o=np.zeros(256, "i4"),
    )  # fmt: skip
    with np.errstate(over="ignore"):
        more = EXTREMES + np.int32(1)
        twice = EXTREMES * np.int32(2)
    assert out[0::4].tolist() == (more > EXTREMES).tolist()
    assert out[1::4].tolist() == (c_quotient(twice, np.full(64, 2)) == EXTREMES).tolist()
    assert out[2::4].tolist() == more.tolist()
    assert (out[3::4] == 8).all()


def test_floats_become_the_nearest_integer_of_the_type(run: Run) -> None:
    values = np.array(
        [0.5, -0.5, 1e20, -1e20, np.nan, np.inf, -np.inf, 2147483520, 300, -300, 127.9, -128.9] * 6, "f4"
    )[:64]
    kinds = {"int": "i4", "unsigned": "u4", "char": "i1", "unsigned char": "u1", "short": "i2", "unsigned short": "u2"}
    lines = "".join(f"o[6 * i + {at}] = (int)({kind})f[i];" for at, kind in enumerate(kinds))
    _, out = run(f"int i = kk_global_id(0); {lines}", f=values, o=np.zeros(384, "i4"))
    for at, dtype in enumerate(kinds.values()):
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        expected = [0 if np.isnan(v) else int(min(max(float(v), least), most)) for v in values]
        assert out[at::6].tolist() == np.array(expected, "i8").astype("u4").view("i4").tolist(), dtype


def test_vectors_of_floats_become_the_nearest_integers(run: Run) -> None:
    values = np.array([0.5, -0.5, 1e20, -1e20, np.nan, np.inf, -np.inf, 300], "f4")
    body = """int i = kk_global_id(0) * 4; if (i < 8) { float4 v = kk_load4(f, i); int4 a = (int4)v; uint4 b = (uint4)v;
              o[i] = a.x; o[i + 1] = a.y; o[i + 2] = a.z; o[i + 3] = a.w;
              o[i + 8] = (int)b.x; o[i + 9] = (int)b.y; o[i + 10] = (int)b.z; o[i + 11] = (int)b.w; }"""
    _, out = run(body, f=values, o=np.zeros(16, "i4"))
    assert out[:8].tolist() == [0, 0, 2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31), 300]
    assert out[8:].tolist() == [0, 0, -1, 0, 0, -1, 0, 300]


def test_buffers_of_bytes_and_halfwords(run: Run) -> None:
    random = np.random.default_rng(1)
    x, w = random.integers(0, 256, 61).astype("u1"), random.integers(-3000, 3000, 61).astype("i2")
    _, y, z, _ = run(
        """int in = kk_global_id(0); if (in >= n) return;
           y[in] = x[in] + 100; y[in] += 3; y[in]++;
           z[in] = w[in] * 3 - x[in]; z[in] >>= 1;
           unsigned char c = x[in]; c += 200; c--; signed char d = c; z[in] += d;""",
        x=x, y=np.zeros(61, "i1"), z=np.zeros(61, "u2"), w=w, scalars={"n": 61},
    )  # fmt: skip
    assert y.tolist() == (x.astype("i4") + 104).astype("i1").tolist()
    first = (w.astype("i4") * 3 - x).astype("u2") >> 1
    assert z.tolist() == (first + (x.astype("i4") + 199).astype("i1")).astype("u2").tolist()


def test_long_and_double(run: Run) -> None:
    random = np.random.default_rng(2)
    a, d = random.integers(-(2**62), 2**62, 64), random.random(64) * 100
    x, y = run(
        """int i = kk_global_id(0); size_t j = i; long v = a[j];
           a[j] = v * v * 1000003 + v / 7 + v % 7 + (v << 70);
           switch (v & 3) { case 0: a[i]++; break; case 1: a[i] += 5; default: a[i] -= 1; }
           d[i] = sqrt(d[i]) + fmod(d[i], 1.5) + round(d[i]);""",
        a=a, d=d,
    )  # fmt: skip
    quotient = np.array([int(abs(int(v)) // 7) * (1 if v >= 0 else -1) for v in a])
    with np.errstate(over="ignore"):
        expected = a * a * 1000003 + quotient + (a - quotient * 7) + (a << 6)
        expected += np.choose(a & 3, [1, 4, -1, -1])
    assert x.tolist() == expected.tolist()
    np.testing.assert_allclose(y, np.sqrt(d) + np.fmod(d, 1.5) + np.round(d), rtol=1e-14)


def test_functions_that_targets_lack(run: Run) -> None:
    x, y = np.linspace(-9.5, 9.5, 64).astype("f4"), np.linspace(3.1, -4, 64).astype("f4")
    functions: dict[str, Any] = {
        "round(x)": np.trunc(x + np.copysign(np.float32(0.5), x)), "rint(x)": np.rint(x), "cbrt(x)": np.cbrt(x),
        "expm1(x / 40)": np.expm1(x / 40), "log1p(fabs(x) / 40)": np.log1p(np.abs(x) / 40),
        "fmod(x * 100, y)": np.fmod(x * 100, y),
        "hypot(x, y)": np.hypot(x, y), "copysign(x, y)": np.copysign(x, y), "pow(x, 3.0f)": x**3,
        "fdim(x, y)": np.maximum(x - y, 0),
        "mix(x, y, 0.25f)": x + (y - x) * np.float32(0.25), "sign(x)": np.sign(x), "(half)x": x.astype("f2"),
        "degrees(x)": np.degrees(x), "clamp(x, -1.0f, 1.0f)": np.clip(x, -1, 1), "step(x, y)": np.where(y < x, 0, 1),
        "popcount((int)x)": [(int(v) & 0xFFFFFFFF).bit_count() for v in x],
        "isnan(NAN * x) + isinf(INFINITY * y)": np.full(64, 2), "signbit(x)": np.signbit(x),
    }  # fmt: skip
    lines = "".join(f"o[{at} * 64 + i] = {call};" for at, call in enumerate(functions))
    *_, out = run(
        f"int i = kk_global_id(0); float x = a[i], y = b[i]; {lines}", a=x, b=y, o=np.zeros(64 * len(functions), "f4")
    )
    for at, (call, expected) in enumerate(functions.items()):
        np.testing.assert_allclose(out[64 * at : 64 * at + 64], np.asarray(expected, "f4"), 1e-5, 1e-6, err_msg=call)


def test_arrays_seen_as_another_type_and_pointers_set_late(run: Run) -> None:
    x = np.arange(64, dtype="f4")
    _, out, words = run(
        """kk_shared(uint2, pairs, 32); kk_shared(float, tile, 8, 8);
           int i = kk_local_id(0);
           float4* from = (float4*)x; float4* to = (float4*)o;
           float2* halves = (float2*)(o + 64);
           uint* flat = (uint*)pairs;
           float* cell = &tile[i / 8][i % 8]; float* row;
           int which = 63 - i;
           *cell = x[i]; flat[which] = (uint)(3 * i);
           kk_barrier();
           row = tile[3];
           o[128 + i] = row[i - 24] - row[5];
           if (i < 16) { to[i] = from[15 - i]; to[i] *= (float4)(2.0f); to[i].y = -1.0f; }
           if (i < 32) { float2 v = (float2)(i, -i); halves[i] = v; halves[i] += v; }
           w[2 * i] = pairs[i / 2].y; w[2 * i + 1] = cell - row;""",
        x=x, o=np.zeros(192, "f4"), w=np.zeros(128, "i4"),
    )  # fmt: skip
    expected = 2 * x.reshape(16, 4)[::-1].copy()
    expected[:, 1] = -1
    assert out[:64].tolist() == expected.ravel().tolist()
    assert out[64:128].reshape(32, 2).tolist() == [[2 * k, -2 * k] for k in range(32)]
    assert out[128:].tolist() == (x - 29).tolist()
    assert words[0::2].tolist() == [3 * (63 - (k // 2 * 2 + 1)) for k in range(64)]
    assert words[1::2].tolist() == list(range(-24, 40))


def test_bytes_seen_as_words_and_words_as_bytes(run: Run) -> None:
    bytes_ = np.random.default_rng(3).integers(0, 256, 256).astype("u1")
    halves = np.random.default_rng(4).integers(-(2**15), 2**15, 128).astype("i2")
    words = np.random.default_rng(5).integers(-(2**31), 2**31, 64).astype("i4")
    out_bytes, out_halves, _, out = run(
        """kk_shared(uchar, cell, 256);
           int i = kk_local_id(0);
           uint* w = (uint*)b; int* p = (int*)h; signed char* c = (signed char*)z; ushort* u = (ushort*)z;
           o[6 * i] = w[i]; o[6 * i + 1] = p[i]; o[6 * i + 2] = c[4 * i + 3]; o[6 * i + 3] = u[2 * i];
           ((uint*)cell)[i] = 0x04030201u;
           kk_barrier();
           o[6 * i + 4] = cell[i]; o[6 * i + 5] = ((uchar*)z)[63 - i];
           w[i] = z[i]; p[i] ^= 0x10001;""",
        b=bytes_, h=halves, z=words, o=np.zeros(384, "i4"),
    )  # fmt: skip
    assert out_bytes.tobytes() == words.tobytes()
    assert out_halves.view("i4").tolist() == (halves.view("i4") ^ 0x10001).tolist()
    found = out.reshape(64, 6).T
    assert found[0].tolist() == bytes_.view("i4").tolist()
    assert found[1].tolist() == halves.view("i4").tolist()
    assert found[2].tolist() == words.view("i1")[3::4].tolist()
    assert found[3].tolist() == words.view("u2")[0::2].tolist()
    assert found[4].tolist() == [1, 2, 3, 4] * 16
    assert found[5].tolist() == words.view("u1")[63::-1].tolist()


def test_a_function_changes_a_vector_through_a_pointer(run: Run) -> None:
    (out,) = run(
        """void turn(int4* v, int2 w[], int by) { int t = (*v).x; v->x = v->w + by; (*v).w = t; w[1].y += v[0].x; }
           int i = kk_global_id(0);
           int4 v = (int4)(i, 1, 2, 3); int2 w[2] = {{0, 0}, {0, i}};
           turn(&v, w, 4);
           o[4 * i] = v.x; o[4 * i + 1] = v.y; o[4 * i + 2] = v.w; o[4 * i + 3] = w[1].y;""",
        o=np.zeros(256, "i4"),
    )
    assert out.reshape(64, 4).tolist() == [[7, 1, k, k + 7] for k in range(64)]


def test_a_reduction_that_doubles_its_distance(run: Run) -> None:
    """PoCL 3.0 forgets the additions where the bound of this loop is get_local_size(0)."""
    x = np.arange(64, dtype="f4")
    _, out = run(
        """kk_shared(float, s, 64);
           unsigned int me = kk_local_id(0);
           s[me] = x[me];
           kk_barrier();
           for (unsigned int d = 1; d < kk_group_size(0); d *= 2) { if (me % (2 * d) == 0) s[me] += s[me + d]; kk_barrier(); }
           if (me == 0) o[0] = s[0];""",
        x=x, o=np.zeros(1, "f4"),
    )  # fmt: skip
    assert out[0] == x.sum()


def test_one_work_item_changes_what_all_have_set(run: Run) -> None:
    """PoCL 3.0 takes a shared variable for one that no other work-item changes, unless its address is kept."""
    (out,) = run(
        """kk_shared(int, s, 8); __local int q;
           int i = kk_local_id(0);
           q = 0; s[5] = 0;
           kk_barrier();
           for (int r = 0; r < 3; r++) {
               o[i] += q + 10 * s[5];
               kk_barrier();
               if (i == 63) { q += 1; s[5] += 1; }
               kk_barrier();
           }""",
        o=np.zeros(64, "i4"),
    )
    assert (out == 33).all()


def test_a_barrier_in_a_branch_that_some_groups_take(device: Device, written: Callable[..., str]) -> None:
    """PoCL 3.0 forgets what was done in such a branch, unless the kernel is not optimised first."""
    body = """kk_shared(float, s, 64);
        int i, me = kk_local_id(0), group = kk_group_id(0), other;
        s[me] = x[kk_global_id(0)];
        other = group;
        kk_barrier();
        if (other != n) {
            for (i = 2; i <= 64; i = 2 * i) { if ((me + 1) % i == 0) s[me] = s[me] + s[me - i / 2]; kk_barrier(); }
            if (me == 63) x[192 + group] = s[me];
        }
        else if (me == 3) x[192 + group] = 5.0f;"""
    source = kk.Source(written(device.language, body), name="k", language=device.language)
    x = device.array(np.ones(196, "f4"))
    with device.build(source) as program:
        program.kernel("k").launch(3, (x, 1))
        assert x.numpy()[192:].tolist() == [64, 5, 64, 1]


def test_only_such_kernels_are_left_alone_by_the_optimiser(written: Callable[..., str]) -> None:
    for body, expected in (
        ("int g = kk_group_id(0); if (g > n) { kk_barrier(); }", True),
        ("if (n > 3) { kk_barrier(); } if (kk_group_id(0) > 2) x[0] = 1;", False),
        ("kk_shared(int, s, 1); for (int i = kk_group_id(0); i < n; i += 8) { s[0] = i; kk_barrier(); }", False),
    ):
        assert ("optimize off" in written("opencl", body)) == expected, body
        assert "optimize off" not in written("cuda", body)


def test_a_part_of_an_array_is_read_before_a_later_operand_writes_to_it(run: Run) -> None:
    body = """int first(const int* p) { return p[0]; }
              o[0] = first(x + 1) + (x[1] = 5) * 10; o[1] = (x[2] = 7) * 10 + first(&x[2]);"""
    x, out = run(body, group=1, x=np.array([1, 2, 3], "i4"), o=np.zeros(2, "i4"))
    assert (x.tolist(), out.tolist()) == ([1, 5, 7], [52, 77])


def test_names_that_the_writer_makes_are_not_those_of_the_user(run: Run) -> None:
    body = """int from(const int* p, int p_from) { int p_given = p[0]; p_from += p_given; return p_from; }
              n += n_given; o[0] = from(x + 1, 100) + n;"""
    _, out = run(body, group=1, x=np.array([1, 2], "i4"), o=np.zeros(1, "i4"), scalars={"n": 1000, "n_given": 3000})
    assert out[0] == 4102


def test_a_hash_that_is_cut_to_a_byte_wraps_in_an_index(run: Run) -> None:
    body = """int i = kk_global_id(0), h = i * 1103515245 + 12345;
              unsigned char small = h * 33 + i; o[(unsigned char)(h * 33 + i)] = i + 1; p[small] = i + 1;"""
    o, p = run(body, o=np.zeros(256, "i4"), p=np.zeros(256, "i4"))
    expected = np.zeros(256, "i4")
    for i in range(64):
        expected[((i * 1103515245 + 12345) * 33 + i) % 256] = i + 1
    assert o.tolist() == p.tolist() == expected.tolist()


def test_names_that_a_target_has_macros_and_types_for(run: Run) -> None:
    names = "SHRT_MAX ULONG_MIN M_LN2 M_PI_2_F DBL_EPSILON FLT_DIG CLK_LOCAL_MEM_FENCE image2d_array_t GL_ARB_gpu_shader_int64"
    functions = "convert_int memory_order atomic_int samplerExternalOES imageAtomicAdd".split()
    body = "".join(f"int {name}(int v) {{ return v + {at}; }}\n" for at, name in enumerate(functions))
    body += "".join(f"int {name} = {at}; o[{at}] = {name};\n" for at, name in enumerate(names.split()))
    body += "".join(f"o[9 + {at}] = {name}(9);\n" for at, name in enumerate(functions))
    (out,) = run(body, group=1, o=np.zeros(14, "i4"))
    assert out.tolist() == list(range(14))


def test_a_half_among_parameters_with_the_name_of_its_bits(device: Device) -> None:
    params: list[Any] = [kk.Scalar("a", "f2"), kk.Scalar("a_bits", "i4"), kk.Buffer("o", "f4")]
    kernel = kk.PortableKernel("k", params, "o[0] = a + a_bits;", 1)
    out = device.array(np.zeros(1, "f4"))
    with device.build(kernel.source(device)) as program:
        program.kernel().launch(1, (np.float16(1.5), 4, out))
    assert out.numpy()[0] == 5.5


@pytest.mark.parametrize(
    "statement",
    [
        "if (n > 5 && x[i] > 3) a = 2; else a = 3;",
        "if (n <= 5 || x[i] <= 3) a = 3; else a = 2;",
        "a = n > 5 && x[i] > 3 ? 2 : 3;",
        "a = 1 + ((n > 5 ? x[i] > 3 : 0) ? 1 : 2);",
        "int m = n * 2; if (m > 10 && n > 5 && x[i] > 3) a = 2; else a = 3;",
        "a = 3; if (n > 5 && n < 100 && x[i] > 3) a = 2;",
    ],
)
def test_a_condition_whose_first_part_is_the_same_for_all(run: Callable[..., list[Array]], statement: str) -> None:
    """PoCL 3.0 takes the whole of it for the same, where the branches set constants and a barrier follows."""
    x = (np.arange(64) * 7 % 9).astype("i4")
    body = f"int i = kk_global_id(0), a;\n{statement}\nkk_barrier();\ny[i] = a;"
    _, y = run(body, scalars={"n": 9}, x=x, y=np.zeros(64, "i4"))
    assert y.tolist() == np.where(x > 3, 2, 3).tolist()


def test_only_such_conditions_are_made_to_vary(written: Callable[..., str]) -> None:
    for body, expected in (
        ("int a = n > 5 && x[kk_local_id(0)] > 3; kk_barrier(); x[0] = a;", True),
        ("int i = kk_global_id(0); int a = i < n && x[i] > 3; kk_barrier(); x[0] = a;", False),
        ("if (n > 5 && n < 9) { kk_barrier(); }", False),  # a barrier needs what is the same for all
        ("x[0] = n > 5 && x[1] > 3;", False),
    ):
        assert ("kk_varies" in written("opencl", body)) == expected, body


@pytest.mark.parametrize("group", [1, 9])
def test_a_loop_that_depends_on_a_buffer_leaves_the_next_loop_its_rounds(run: Run, group: int) -> None:
    body = """int i = 0; while (x[i] < 8) i += 4;
              do { i -= 4; } while (x[i + 3] > 3); o[kk_local_id(0)] = i;"""
    _, out = run(body, group=group, x=np.arange(16, dtype="i4"), o=np.full(group, -1, "i4"))
    assert out.tolist() == [0] * group


LONG = f"""float twice(float v) {{ return v + v; }}
int i = kk_global_id(0);
o[4 * i] = {" + ".join(f"a[i] * {at}" for at in range(300))};
o[4 * i + 1] = {" ^ ".join(f"(a[i] + {at})" for at in range(300))};
o[4 * i + 2] = {" && ".join(f"a[i] != {at}" for at in range(300))};
o[4 * i + 3] = o[{" + ".join(["4 * i", *["0 * i"] * 300])}];
f[i] = {" + ".join(f"twice(f[i] + {at}.0f)" for at in range(300))};
"""


def test_a_chain_of_300_operators(run: Run) -> None:
    numbers = np.arange(270, 334, dtype="i4")
    _, out, floats = run(LONG, a=numbers, o=np.zeros(256, "i4"), f=np.ones(64, "f4"))
    assert out[0::4].tolist() == (numbers * sum(range(300))).tolist()
    assert out[1::4].tolist() == [np.bitwise_xor.reduce(one + np.arange(300)) for one in numbers]
    assert out[2::4].tolist() == (numbers >= 300).tolist()
    assert out[3::4].tolist() == out[0::4].tolist()
    assert (floats == 2 * sum(range(1, 301))).all()


def test_a_chain_of_300_operators_for_every_target(writer: Callable[..., Any]) -> None:
    params = [kk.Buffer("a", "i4", "r"), kk.Buffer("o", "i4"), kk.Buffer("f", "f4")]
    for target in TARGETS:
        text = writer(target, kk.PortableKernel("k", params, LONG, 64)).text
        assert text.count("299") == 4, target
