"""Bodies with mistakes: the sentence, the line and the column."""

from __future__ import annotations

from typing import Any

import pytest

import kernelkeep as kk


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        # names
        ("z[0] = nn;", (1, 8), "unknown name nn; did you mean n?"),
        ("z[0] = kk_globl_id(0);", (1, 8), "unknown function kk_globl_id; did you mean kk_global_id?"),
        ("flaot v = 1;", (1, 1), "unknown type flaot; did you mean float?"),
        ("int i = 1; int i = 2;", (1, 16), "i is declared twice"),
        ("int n = 1;", (1, 5), "n is declared twice"),
        ("{ int i = 1; } z[0] = i;", (1, 23), "unknown name i"),
        ("float f(float v) { return v; }\ny[0] = f;", (2, 8), "f is a function: call it as f(…)"),
        ("y[0] = n(1);", (1, 8), "n is a variable and cannot be called"),
        ("struct p q;", (1, 8), "struct p is not defined"),
        ("void v[2];", (1, 6), "v must have a type other than void"),
        ("struct s { void v; };", (1, 17), "field v must have a type other than void"),
        ("struct s {};", (1, 1), "a struct must have a field"),
        ("int v[65536][65536];", (1, 5), "int[65536][65536] has more than 16777216 elements"),
        ("struct s { int v[65536]; }; struct s w[65536];", (1, 38), "has more than 16777216 elements"),
        ("z[0] = ٣;", (1, 8), "٣ is not a number"),
        # what is missing at the end of a line
        ("n = 1\n", (1, 6), "; is missing behind the statement, the text ends here"),
        ("int i = 0  // first\n\nif (i) n = 1;", (1, 10), "; is missing behind the declaration, got if"),
        ("if (n) {\n  n = 1;\n\n", (2, 9), "} is missing, the text ends here"),
        ("n = 1;\n}\nn = 2;", (2, 1), "} without a {"),
        # words of other languages
        ("__global__ void f(float *x) {\n  x[0] = blockIdx.x;\n}", (1, 1), "the body is the inside of the kernel"),
        ('extern "C" __global__ void __launch_bounds__(8) f(float *x) { }', (1, 1), "give its parameters in params="),
        ("int f(int v) { return v; }\n__kernel void g(__global float *x) { }", (2, 1), "leave its head out"),
        ("kernel void f(global float *x) { x[0] = 1; }", (1, 1), "the body is the inside of the kernel"),
        ("extern __shared__ float t[];", (1, 1), "the size of a shared array is written in the kernel"),
        ("template <typename T> T f(T v) { return v; }", (1, 1), "there are no templates"),
        ("z[get_global_id(0)] = 1;", (1, 3), "get_global_id is OpenCL's: write kk_global_id(0)"),
        ('printf("%d", n);', (1, 1), 'there is no printf: write kk_print("label", value)'),
        ("kk_result(n);", (1, 1), 'kk_result is for tasks that have a result: write kk.Task(…, result="f4")'),
        ("int half = 1;\nhalf h = 2;", (2, 1), "half is a variable here, since line 1"),
        # indices
        ("float t[4][4]; t[n] = 1;", (1, 21), "t has 2 dimensions, and this gives 1 index"),
        ("float t[4][4][4]; a = t[n][n];", (1, 23), "t has 3 dimensions, and this gives 2 indices"),
        ("y[n][0] = 1;", (1, 1), "this is float: compute one index, as in x[row * width + column]"),
        ("int v = 1; int *p = &v;", (1, 21), "a pointer is set to an array: v is no array"),
        # types
        ("y[0] = x;", (1, 8), "this is an array (float[]), and a value is needed: give an index"),
        ("y[0] = x + 1;", (1, 10), "this is an array (float[]), and a value is needed: give an index"),
        ("x;", (1, 1), "this is an array (float[]), and a value is needed: give an index"),
        ("n = (x, 1);", (1, 6), "this is an array"),
        ('"text";', (1, 1), "a text stands only in kk_print"),
        ("y[1.5] = 0;", (1, 3), "an index must be an integer, got float"),
        ("n[0] = 1;", (1, 1), "only arrays have an index, and this is int"),
        ("y[0] = a % 2;", (1, 10), "% takes integers, got float and int; fmod(a, b)"),
        ("y[0] = a & 2;", (1, 10), "& takes integers"),
        ("y[0] = ~a;", (1, 8), "~ cannot be applied to float"),
        ("a <<= 1;", (1, 1), "the left operand of << must be an integer, got float"),
        ("y[0] = kk_barrier();", (1, 8), "this function returns nothing"),
        ("if (kk_fence()) n = 1;", (1, 5), "this function returns nothing"),
        ("float4 v = {1}; y[0] = v;", (1, 24), "the assigned value must be float, got float4"),
        ("float4 v = {1}; if (v < v) n = 1;", (1, 23), "< cannot compare float4"),
        ("float4 v = {1}; y[0] = v.q;", (1, 26), "float4 has no element q: it has x, y, z, w"),
        ("float2 v = {1}; y[0] = v.z;", (1, 26), "float2 has no element z"),
        ("float4 v = {1}; v.xx = v.xy;", (1, 17), "an element is assigned twice in .xx"),
        ("float2 v = {1, 2, 3};", (1, 19), "has more elements than float2"),
        ("float3 v = {1}; float2 w = {1}; v = v + w;", (1, 39), "+ cannot be applied to float3 and float2"),
        ("y[0] = n.x;", (1, 10), "int has no fields"),
        ("struct s { int a; }; struct s v = {1}; n = v.b;", (1, 46), "struct s has no field b"),
        ("struct s { int a; }; struct s v = {1}; n = v + 1;", (1, 46), "+ cannot be applied to struct s and int"),
        ("switch (a) { case 1: n = 1; }", (1, 9), "the value of a switch must be an integer, got float"),
        ("y[0] = sqrt(1, 2);", (1, 8), "sqrt takes 1 argument, got 2"),
        ("z[0] = kk_global_id(3);", (1, 21), "must be 0, 1 or 2, got 3"),
        ("z[0] = popcount(a);", (1, 17), "must be an integer, got float"),
        ("z[0] = as_int(d[0]);", (1, 15), "must be int, uint or float, got double"),
        ("long double v = 1;", (1, 6), "the name of a variable is missing, got double"),
        ("short long v = 1;", (1, 1), "short long is no type"),
        # what can be assigned
        ("x[0] = 1;", (1, 6), 'x must not be written: its access is "r": declare it "rw", in Python kk.InOut'),
        ("x[0]++;", (1, 5), 'x must not be written: its access is "r"'),
        ("kk_store4(x, 0, kk_load4(y, 0));", (1, 11), 'x must not be written: its access is "r"'),
        ("const int c = 1; c = 2;", (1, 20), "c must not be changed: it is const"),
        ("const int c;", (1, 11), "c is const and must have a value"),
        ("n + 1 = 2;", (1, 7), "this cannot be assigned to"),
        ("3++;", (1, 2), "; is missing behind the statement, got ++"),
        ("y = x;", (1, 3), "a pointer stays within one array, and this one points into y"),
        ("float t[2]; t = x;", (1, 15), "an array cannot be assigned: assign its elements"),
        ("float* p = y; p = y + 1; p = x;", (1, 28), "a pointer stays within one array, and this one points into y"),
        ("void f(const float p[]) { p[0] = 1; }\nf(x);", (1, 32), "p must not be written: it is const"),
        ("void f(float p[]) { p[0] = 1; }\nf(x);", (2, 3), 'x must not be written: its access is "r"'),
        # arrays
        ("int t[n];", (1, 7), "the size of an array must be a constant"),
        ("int t[0];", (1, 7), "must be a positive integer, got 0"),
        ("int t[4]; t[4] = 1;", (1, 13), "index 4 is outside of int[4]: it must be 0 to 3"),
        ("int t[];", (1, 5), "the size of t is missing"),
        ("int t[2] = 1;", (1, 12), "must be a list in braces"),
        ("if (n > 0) { kk_shared(float, t, 4); }", (1, 14), "kk_shared stands at the top level of the body only"),
        ("void f() { kk_shared(float, t, 4); }\nf();", (1, 12), "kk_shared stands at the top level"),
        ("if (n > 0) { __shared__ float t[4]; }", (1, 14), "kk_shared stands at the top level of the body only"),
        ("kk_shared(float, t);", (1, 18), "the size of shared array t is missing"),
        # atomics
        ("n = max(&z[0], 1);", (1, 9), "this is an array"),
        ("n = &n;", (1, 5), "this is an array"),
        ("kk_shared(int4, t, 4); kk_atomic_add(t[0][1], 1);", (1, 38), "kk_atomic_add takes an element of a buffer"),
        ("struct s { int a[2]; }; kk_shared(struct s, t, 4); kk_atomic_add(t[0].a[1], 1);", (1, 66), "takes an element"),
        ("int t[2]; kk_atomic_add(t[0], 1);", (1, 25), "takes an element of a buffer or of a shared array"),
        (
            "void f(int* p) { kk_atomic_add(p[0], 1); }\nvoid g(int* p) { f(p + 1); }\nint t[2]; g(t);",
            (3, 13),
            "p of g must be a buffer or a shared array: the function uses atomics on it",
        ),
        ("kk_atomic_add(n, 1);", (1, 15), "kk_atomic_add takes an element of a buffer or of a shared array"),
        ("kk_atomic_and(y[0], 1);", (1, 15), "kk_atomic_and takes an element of type int or uint, got float"),
        ("kk_atomic_add(d[0], 1);", (1, 15), "of type int, uint or float, got double"),
        ("kk_atomic_add(x[0], 1);", (1, 15), 'x must not be written: its access is "r"'),
        # functions
        ("int f(int i) { return f(i - 1); }\nz[0] = f(3);", (1, 23), "f calls itself"),
        ("int f(int i) { if (i > 0) return 1; }\nz[0] = f(3);", (1, 5), "f must return int on every path"),
        ("int f(int i) { return; }\nz[0] = f(3);", (1, 16), "f must return int"),
        ("void f() { return 1; }\nf();", (1, 19), "f returns nothing: write return;"),
        ("return 1;", (1, 8), "a kernel returns nothing"),
        ("int f(int i) { return i; }\nz[0] = f();", (2, 8), "f takes 1 argument, got 0"),
        ("int f(float p[]) { return 1; }\nz[0] = f(z);", (2, 10), "p of f must be the name of an array of float, got int[]"),
        ("int g(int i);\nint f(int i) { return g(i); }\nz[0] = f(1);", (2, 23), "g is declared in line 1: put its definition"),
        ("int f() { return n; }\nz[0] = f();", (1, 18), "unknown name n"),
        ("n = 1; int f() { return 1; }", (1, 1), "only functions, structs and constants stand before a helper function"),
        ("float v = 1;\nint f() { return 1; }\nz[0] = f();", (1, 7), "v stands before a helper function and must be const"),
        # statements
        ("break;", (1, 1), "break stands in a loop or a switch only"),
        ("switch (n) { case 1: continue; }", (1, 22), "continue stands in a loop only"),
        ("switch (n) { case 1: case 1: n = 2; }", (1, 22), "case 1 is there twice"),
        ("switch (n) { case u: n = 2; }", (1, 19), "a case must be an integer constant"),
        ("goto end;", (1, 1), "there is no goto"),
        ("kk_unroll while (n) n--;", (1, 11), "kk_unroll stands before a for"),
        ("n = 1", (1, 6), "; is missing behind the statement, the text ends here"),
        ("n = (1;", (1, 7), ") is missing, got ;"),
        ("n = ;", (1, 5), "an expression is missing, got ;"),
        ("if n > 0) n = 1;", (1, 4), "( is missing, got n"),
        ("for (int i = 0; i < n) n = 1;", (1, 22), "; is missing in for, got )"),
        ("{ n = 1;", (1, 9), "} is missing"),
        ("n = 1; }", (1, 8), "} without a {"),
        ("float* p; a = p[n];", (1, 15), "pointer p is used before it is set to an array or an element"),
        ("float* p; p = z;", (1, 15), "p must be set to an array of float, got int[]"),
        ("float* p; p = y; p = z;", (1, 20), "a pointer stays within one array, and this one points into y"),
        ("__global int* p = y;", (1, 19), "p must be set to an array of int, got float[]"),
        ("int* p = (int*)y;", (1, 10), "float* cannot become int*: a cast of a pointer goes from numbers to vectors"),
        ("((char*)z)[n] = 1;", (1, 15), "this cannot be assigned to: it is a value"),
        ("float3* p = (float3*)y;", (1, 13), "float* cannot become float3*"),
        ("int v = 1; n = *(int*)v;", (1, 17), "only an array can become a pointer, and this is int"),
        ("float** p = (float**)y;", (1, 20), "there are no pointers to pointers"),
        ("n = x < y;", (1, 7), "< takes pointers into one array only: write it with indices"),
        ("((float4*)x)[n] = (float4)(1);", (1, 17), 'x must not be written: its access is "r"'),
        ("float2* p = (float2*)y; p[n++] = p[0];", (1, 25), "must not change anything: use a variable"),
        ("float f(float4 v[]) { return v[0].x; }\na = f((float4*)y);", (2, 7), "v of f must be an array of float4 itself"),
        ("float f(float v[]) { return v[0]; }\nfloat t[2][2]; a = f(&t[1][0]);", (2, 22), "pass the array and an index"),
        ("const float* p = x; p[0] = 1;", (1, 26), 'x must not be written: its access is "r"'),
        ("n = *u;", (1, 5), "there are no pointers but those into an array, and this is uint"),
        ("n = 08;", (1, 5), "08 is not a number"),
        ("n = 1 @ 2;", (1, 7), "missing behind the statement, got @"),
        # barriers
        ("int i = kk_global_id(0); if (i >= n) return;\nkk_barrier();", (1, 38), "return before the barrier in line 2"),
        ("int i = kk_local_id(0); int j = i + 1;\nfor (int k = 0; k < 3; k++) { if (j > k) return; kk_barrier(); }",
         (2, 42), "return before the barrier in line 2"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_place(read: Any, body: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read(body)
    first = caught.value.log.split("\n")
    assert message in first[0]
    assert caught.value.line == place[0]
    assert first[2].index("^") - 4 == place[1] - 1


def test_the_message_shows_the_line_with_a_caret(read: Any) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read("int i = kk_global_id(0);\n\tif (i < n) y[i] = scale * x[i];\n")
    assert str(caught.value) == (
        "kernel k, line 2: unknown name scale\n    \tif (i < n) y[i] = scale * x[i];\n    \t                  ^"
    )
    assert caught.value.name == "k"


def test_several_mistakes_are_reported_at_once_and_in_order(read: Any) -> None:
    body = "float v = w;\nz[0] = v +;\nx[0] = 1;\nfor (int i = 0; i < q; i++) { y[i] = p; }\nz[1] = v;"
    with pytest.raises(kk.CompileError) as caught:
        read(body)
    assert str(caught.value).endswith("(4 more errors: kk.check and .log of this exception have all)")
    lines = [int(line.split(":")[0][5:]) for line in caught.value.log.split("\n") if line.startswith("line ")]
    assert lines == [1, 2, 3, 4, 4]


def test_a_mistake_in_a_macro_is_where_the_macro_is_used(read: Any) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read("#define TWICE(v) ((v) + missing)\nn = 1;\nz[0] = TWICE(n);")
    assert caught.value.line == 3
    assert "unknown name missing (in macro TWICE)" in str(caught.value)


def test_one_mistake_does_not_cause_others(read: Any) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read("float v = unknown * 2;\nfloat w = sqrt(v) + unknown[3].x;\ny[0] = v % w;")
    assert [line.split(":")[0] for line in caught.value.log.split("\n") if line.startswith("line")] == [
        "line 1",
        "line 2",
        "line 3",
    ]


def test_a_text_that_is_no_c_at_all_ends_with_an_error(read: Any) -> None:
    for body in (
        "))))",
        "{{{{",
        "@@@@",
        "int",
        "if",
        "kk_shared(",
        "#if",
        "struct",
        "for (",
        "a b c d e",
        "case 1:",
        '"',
    ):
        with pytest.raises(kk.CompileError):
            read(body)
    with pytest.raises(kk.CompileError, match="nested too deeply"):
        read("n = " + "(" * 5000 + "1" + ")" * 5000 + ";")


def test_at_most_twenty_errors_are_collected(read: Any) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read("\n".join(f"n = v{i};" for i in range(100)))
    assert caught.value.log.count("unknown name") == 20


def test_words_of_cuda_are_reported_once_each(read: Any) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read("int i = blockIdx.x * blockDim.x + threadIdx.x;\nz[blockIdx.x] = blockIdx.y * gridDim.x;")
    assert [one.sentence for one in caught.value.problems] == [
        "blockIdx is CUDA's: write kk_group_id(0) for blockIdx.x",
        "blockDim is CUDA's: write kk_group_size(0) for blockDim.x",
        "threadIdx is CUDA's: write kk_local_id(0) for threadIdx.x",
        "gridDim is CUDA's: write kk_group_count(0) for gridDim.x",
    ]


def test_words_of_other_languages_are_names_like_others(read: Any) -> None:
    names = ("template", "kernel", "extern_", "threadIdx", "blockDim", "printf", "get_global_id", "math")
    for name in names:
        read(f"int {name} = 1; {name} = 2; {name} < 3; z[{name}] = {name};")
    read("int printf(int v) { return v; }\nint get_global_id(int v) { return v; }\nz[0] = printf(get_global_id(1));")


def test_nothing_is_said_behind_the_head_of_a_whole_kernel(read: Any) -> None:
    with pytest.raises(kk.CompileError) as caught:
        read("__global__ void f(float *x) {\n  x[blockIdx.x] = nothing;\n}\nmore = 1;")
    assert len(caught.value.problems) == 1
