"""The texts themselves: readable, without macros, with a map of their lines; and what a target refuses."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import kernelkeep as kk
from kernelkeep.devices.cuda.compiler import compile_for
from kernelkeep.language.writers import TARGETS, Written
from kernelkeep.language.writers.names import reserved_words

Write = Callable[..., str]

BODY = """float damped(const float v[], int at, float by) { return v[at] * by; }
          int i = kk_global_id(0);
          if (i < n && n) x[i] = damped(x, i, 0.5) + (float)(i % 3);"""


def test_opencl(written: Write) -> None:
    assert (
        written("opencl", BODY)
        == """\
//kk: kernel k group(64,1,1) x:buffer:f4:rw n:scalar:i4:r

static float damped(__global const float* v, int at, float by) {
    return v[at] * by;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void kk_entry_k(__global float* x, const int n) {
    int i = (int)get_global_id(0);
    if (i < n && n != 0) {
        x[i] = damped(x, i, 0.5f) + (float)(i % 3);
    }
}
"""
    )


def test_cuda(written: Write) -> None:
    text = written("cuda", BODY)
    assert text.endswith("""\
__device__ float damped(const float* v, int at, float by) {
    return v[at] * by;
}

extern "C" __global__ void __launch_bounds__(64)
kk_entry_k(float* x, const int n) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n && n != 0) {
        x[i] = damped(x, i, 0.5f) + (float)(i % 3);
    }
}
""")


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        # Used in indices only: what compilers may assume of an index holds for the variable, too.
        ("int i = kk_global_id(0), at = i * n + 1; x[at] = x[at + n];", ["int at = i * n + 1;", "x[at] = x[at + n];"]),
        ("int i = n, to = i + 7; i += n * n; x[i] = x[to];", ["int to = i + 7;", "i += n * n;"]),
        ("int a = n + 1, b = a * n; x[b] = 0;", ["int a = n + 1;", "int b = a * n;"]),
        # Not only there: it wraps.
        ("int at = n + 1; if (at < 0) x[at] = 0;", ["int at = (int)(n + 1u);"]),
        ("int a = n + 1, b = a * n; x[b] = a;", ["int a = (int)(n + 1u);", "int b = a * n;"]),
        ("int at = n * 3; x[at & 7] = 0;", ["int at = (int)(n * 3u);"]),
        ("int at = n; at += n; x[at % 7] = 0;", ["at = (int)((unsigned)at + n);"]),
        ("int at = n, b = at++; x[at] = b;", ["at = (int)(at + 1u)"]),
        # Positions are unsigned already.
        ("x[0] = kk_group_id(1) * 64 + n;", ["(int)(blockIdx.y * 64 + n)"]),
        ("x[0] = n - kk_global_id(0) * n;", ["(int)(n - (blockIdx.x * blockDim.x + threadIdx.x) * n)"]),
        # No overflow is possible.
        ("for (int t = 0; t < n; t += 64) if (t + kk_local_id(0) < n) x[t] = 0;", ["if (t + (int)threadIdx.x < n)"]),
        ("for (int t = 1; t < n; t += 64) if (t + kk_local_id(0) < n) x[t] = 0;", ["if ((int)(t + threadIdx.x) < n)"]),
        ("int s = (n + 15) / 16; for (int i = -1; i < s; i++) x[0] += (i + 1) * 16;", ["(float)((i + 1) * 16)"]),
    ],
)
def test_signed_arithmetic_in_cuda(written: Write, body: str, lines: list[str]) -> None:
    text = written("cuda", body)
    for line in lines:
        assert line in text, text


@pytest.mark.parametrize("target", TARGETS)
def test_texts_say_it_as_a_person_would(written: Write, target: str) -> None:
    text = written(
        target, "int i = kk_local_id(0); if (!i) x[0] = n / 4294967296.0f + 1e-5f; if (!(n < i)) x[1] = 1e20f;"
    )
    for part in ("(i == 0)", "/ 4294967296.0", "1e-5", "(!(", "1e20"):
        assert part in text


@pytest.mark.parametrize(("target", "sum_of"), [("cuda", "v = v + v;"), ("opencl", "v += v;"), ("glsl", "v += v;")])
def test_small_integers_and_vectors_without_superfluous_words(written: Write, target: str, sum_of: str) -> None:
    params = kk.Buffer("x", "f4"), kk.Buffer("c", "u1", "r")
    text = written(target, "int i = 77 * c[0] + (c[1] << 2); float2 v = {1, 2}; v += v; x[i] = v.x;", *params)
    assert sum_of in text
    if target != "glsl":
        assert "77 * c[0] + (c[1] << 2)" in text


def test_glsl(written: Write) -> None:
    assert (
        written("glsl", BODY)
        == """\
#version 430
//kk: kernel k group(64,1,1) x:buffer:f4:rw n:scalar:i4:r
layout(local_size_x = 64, local_size_y = 1, local_size_z = 1) in;

layout(std430, binding = 0) buffer kk_block_x { float x[]; };
layout(std140, binding = 0) uniform kk_scalars { int n; };

float damped(int at, float by) {
    return x[at] * by;
}

void main() {
    int i = int(gl_GlobalInvocationID.x);
    if (i < n && n != 0) {
        x[i] = damped(i, 0.5) + float(i % 3);
    }
}
"""
    )


def test_wgsl(written: Write) -> None:
    assert (
        written("wgsl", BODY)
        == """\
//kk: kernel k group(64,1,1) x:buffer:f4:rw n:scalar:i4:r

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
struct kk_Scalars {
    n: i32,
}
@group(0) @binding(1) var<uniform> kk_scalars: kk_Scalars;

fn damped(at: i32, by: f32) -> f32 {
    return x[at] * by;
}

@compute @workgroup_size(64, 1, 1)
fn kk_entry_k(@builtin(global_invocation_id) kk_global_id: vec3<u32>) {
    let i = i32(kk_global_id.x);
    if (i < kk_scalars.n && kk_scalars.n != 0) {
        x[i] = damped(i, 0.5f) + f32(i % 3);
    }
}
"""
    )


def test_index_arithmetic_and_counters_stay_signed(written: Write) -> None:
    text = written("opencl", "for (int i = 0; i <= n; i += 4) x[i * n + kk_local_id(0)] = i * n;")
    assert "for (int i = 0; i <= n; i += 4) {" in text
    assert "x[i * n + (int)get_local_id(0)] = (float)(int)((uint)i * n);" in text


def test_constants_are_folded(written: Write) -> None:
    assert "x[0] = float(n + 30);" in written("glsl", "#define SIZE (4 * 8 - 2)\nx[0] = n + SIZE;")


@pytest.mark.parametrize("target", TARGETS)
def test_each_line_has_the_line_of_the_body(writer: Callable[..., Written], target: str) -> None:
    kernel = kk.PortableKernel("k", [kk.Buffer("x", "f4")], "int i = 1;\n\nif (i > 0)\n    x[i] = 2;\n", 64)
    written = writer(target, kernel)
    lines = written.lines
    found = dict(zip(written.text.splitlines(), lines, strict=True))
    assert next(line for line_text, line in found.items() if "x[i] = 2.0" in line_text) == 4
    assert next(line for line_text, line in found.items() if "if (i > 0)" in line_text) == 3
    assert lines[0] == 0


@pytest.mark.parametrize(
    ("target", "body", "needed", "sentence"),
    [
        ("wgsl", "long v = n; x[0] = v;", "int64", "WGSL has no type long"),
        ("wgsl", "double v = n; x[0] = v;", "float64", "WGSL has no type double"),
        ("wgsl", "kk_fence();", "fence", "WGSL has no fence between work-items of different groups"),
        ("glsl", "double v = n; x[0] = exp(v);", "float64", "GLSL has no exp of doubles"),
    ],
)
def test_what_a_target_lacks_is_unsupported(written: Write, target: str, body: str, needed: str, sentence: str) -> None:
    with pytest.raises(kk.Unsupported, match=f"kernel k, line 1: {sentence}") as caught:
        written(target, body)
    assert caught.value.args
    assert needed in str(vars(caught.value)) + str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
def test_only_what_is_used_is_written(written: Write, target: str) -> None:
    text = written(target, "float unused(float v) { return v; }\nx[0] = 1;")
    assert "unused" not in text and not re.search(r"#define|kk_(?!entry|block|scalars|Scalars)\w+\(", text)


EVERYTHING = """
struct pair { float a; int b; };
const int TABLE[3] = {1, 2, 3};
float total(const float v[], int n, struct pair p) { float s = 0; for (int i = 0; i < n; i++) s += v[i] * p.a; return s; }
kk_shared(float, tile, 64);
int i = kk_global_id(0), l = kk_local_id(0), k = 0;
struct pair p = {2.0f, i};
tile[l] = x[i]; bool flag = l; flag++;
kk_barrier();
long big = i; double d = big; half h = x[i]; unsigned char c = i; c += 3; big += (long)d + (int)h;
float4 v = kk_load4(x, 4 * l); int3 w = make_int3(1, 2, i); v.xy = v.yx * 2; w = w * 3 - w; w.x = (int)v.x;
kk_unroll for (int j = 0; j < 4; j++) v[j & 3] += sqrt(v.w) + fmod(v.x, 2) + dot(v, v) + clamp(v.y, 0.0f, 1.0f);
kk_store4(tile, 4 * (l & 15), normalize(v) + mix(v, v, v));
while (k++ < 5) p.b -= k;
switch (p.b % 3) { case 0: k = 5; case 1: k++; break; default: k = -k; }
kk_atomic_max(x[0], 3.0f); kk_atomic_sub(x[1], 1.0f); kk_atomic_add(z[l], 1); kk_fence();
z[k++] = k + TABLE[l & 1] + c + popcount(i) + clz((unsigned)i) + (int)big + w.x + as_int(v.z) + flag;
x[i] = total(tile, 64, p) + total(x, 3, p) + (isnan(x[i]) ? INFINITY : pow(x[i], 2)) + kk_global_id(k & 1);
"""


@pytest.mark.parametrize("architecture", ["sm_75", "sm_90"])
def test_nvrtc_compiles_all_of_the_language(writer: Callable[..., Written], architecture: str) -> None:
    kernel = kk.PortableKernel(
        "k", [kk.Buffer("x", "f4"), kk.Buffer("z", "i4"), kk.Buffer("b", "u1", "r")], EVERYTHING, 64
    )
    source = kk.Source(writer("cuda", kernel).text, name="k", language="cuda")
    try:
        assert compile_for(source, architecture)
    except kk.CompileError:
        raise
    except kk.DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("target", TARGETS)
def test_vectors_are_negated_in_every_target(written: Write, target: str) -> None:
    text = written(target, "float3 v = {1, 2, 3}; int2 k = {1, 2}; v = -v; k = -k; x[0] = v.x + k.y;")
    assert "= -v" in text or "-v.x" in text or "neg" in text, text


@pytest.mark.parametrize("target", ["cuda", "opencl"])
def test_a_variable_is_written_once_in_an_expression(target: str, written: Write) -> None:
    """C leaves open which of two writes comes last."""
    text = written(target, "int i = n; i += (i = 3) * 2; i = 1 + i++; x[0] = i;")
    assert all(line.count("i = ") < 2 for line in text.splitlines()), text


def test_names_that_glsl_keeps_for_textures_and_matrices() -> None:
    kept = "usampler2D iimage2DMSArray samplerCubeArrayShadow sampler2DRectShadow uimageBuffer dmat2x3 u64vec4"
    assert set(kept.split()) <= reserved_words("glsl")


def test_names_that_cuda_has_functions_for(written: Write) -> None:
    text = written("cuda", "float lroundf(float v) { return v + 1.0f; } x[0] = lroundf(x[1]);")
    assert compile_for(kk.Source(text, "k", "cuda"), "sm_90")


def test_wgsl_compares_with_nan_as_c_does(written: Callable[..., str]) -> None:
    text = written("wgsl", "int i = kk_global_id(0); if (x[i]) x[i] = 1.0f; if (x[i] != x[i + 1]) x[i] = 2.0f;")
    assert "if (!(x[i] == 0.0f))" in text
    assert "if (!(x[i] == x[i + 1]))" in text
    assert "32640" in written("wgsl", "x[0] = (n, 255) << 7;")


def test_the_condition_of_a_choice_comes_first_in_wgsl(written: Callable[..., str]) -> None:
    """`select` evaluates its condition last, so a call in it would come too late for what it writes."""
    text = written(
        "wgsl", "int filled(int v[]) { v[0] = 5; return 1; } int v[2] = {n, n}; x[0] = filled(v) ? v[0] : 3;"
    )
    assert "if (filled(&v) != 0) {" in text
    assert "select" not in text
    assert "select(3i, v[1], v[0] != 0)" in written("wgsl", "int v[2] = {n, n}; x[0] = v[0] ? v[1] : 3;")


def test_an_atomic_minimum_in_cuda_replaces_a_nan_as_fmin_does(written: Callable[..., str]) -> None:
    text = written("cuda", "kk_atomic_min(x[0], x[1]);")
    assert "while (__uint_as_float(old) > v || isnan(__uint_as_float(old))) {" in text
