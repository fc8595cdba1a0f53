"""Bodies in C and the tree they become. In the expected text, `float(n)` is a conversion and `1:int` a literal."""

from __future__ import annotations

from typing import Any

import pytest

from kernelkeep.language import tree
from kernelkeep.language.guarantees import violations


def last(read: Any, body: str, **options: Any) -> Any:
    return read(body, **options).module.kernel.body.statements[-1]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # conversions
        ("y[0] = n;", "y[0:int] = float(n)"),
        ("y[0] = 1;", "y[0:int] = 1.0:float"),
        ("y[0] = (float)n / 2;", "y[0:int] = (float(n) / 2.0:float)"),
        ("z[0] = (int)a;", "z[0:int] = int(a)"),
        ("z[0] = int(a);", "z[0:int] = int(a)"),
        ("z[0] = kk_int(a);", "z[0:int] = int(a)"),
        ("z[0] = n < 3;", "z[0:int] = int((n < 3:int))"),
        ("z[0] = (n < 3) + (n > 5);", "z[0:int] = (int((n < 3:int)) + int((n > 5:int)))"),
        ("z[0] = n + u;", "z[0:int] = int((uint(n) + u))"),
        ("z[0] = b[0] + b[1];", "z[0:int] = (int(b[0:int]) + int(b[1:int]))"),
        ("z[0] = -b[0];", "z[0:int] = (- int(b[0:int]))"),
        ("z[0] = -1;", "z[0:int] = -1:int"),
        ("z[0] = ~u;", "z[0:int] = int((~ u))"),
        ("u = 1;", "u = 1:uint"),
        ("z[0] = u >> 3;", "z[0:int] = int((u >> 3:int))"),
        ("z[0] = b[0] << u;", "z[0:int] = (int(b[0:int]) << u)"),
        ("bool c = n; if (c == true) z[0] = 1;", "if (c == True:bool) {z[0:int] = 1:int}"),
        ("z[0] = 'a' + '\\n';", "z[0:int] = (97:int + 10:int)"),
        ("z[0] = sizeof(float) + sizeof(int);", "z[0:int] = int((4:ulong + 4:ulong))"),
        # floats without a suffix take the type of what they meet
        ("y[0] = x[0] * 0.5;", "y[0:int] = (x[0:int] * 0.5:float)"),
        ("d[0] = d[1] * 0.1;", "d[0:int] = (d[1:int] * 0.1:double)"),
        ("d[0] = 1.0 / 3;", "d[0:int] = 0.3333333333333333:double"),
        ("d[0] = 1.0 / n;", "d[0:int] = (1.0:double / double(n))"),
        ("y[0] = 1.0 / n;", "y[0:int] = (1.0:float / float(n))"),
        ("d[0] = sqrt(2.0 * n);", "d[0:int] = sqrt((2.0:double * double(n)))"),
        ("d[0] = sqrtf(2.0);", "d[0:int] = double(sqrt(2.0:float))"),
        ("y[0] = n > 0 ? 0.5 : -0.25;", "y[0:int] = ((n > 0:int) ? 0.5:float : -0.25:float)"),
        ("if (1.0 / n > 0.5) n = 1;", "if ((1.0:float / float(n)) > 0.5:float) {n = 1:int}"),
        ("z[0] = (int)(0.5 * n);", "z[0:int] = int((0.5:float * float(n)))"),
        ("y[0] = M_PI * a;", "y[0:int] = (3.1415927410125732:float * a)"),
        # conditions
        ("if (n) n = 0;", "if bool(n) {n = 0:int}"),
        ("if (!n && a) n = 0;", "if ((! bool(n)) && bool(a)) {n = 0:int}"),
        ("while (1) break;", "while True:bool {break}"),
        ("z[0] = n ? 1 : 2.5f;", "z[0:int] = int((bool(n) ? 1.0:float : 2.5:float))"),
        # assignments
        ("n += 2;", "n += 2:int in int"),
        ("b[0] += 2;", "b[0:int] += 2:int in int"),
        ("b[0] <<= 2;", "b[0:int] <<= 2:int in int"),
        ("n *= a;", "n *= a in float"),
        ("a *= n;", "a *= float(n) in float"),
        ("u %= 3;", "u %= 3:uint in uint"),
        ("n = u = 3;", "n = int(u = 3:uint)"),
        ("z[n++] = 1;", "z[n++] = 1:int"),
        ("--n;", "--n"),
        ("n = 1, a = 2;", "(n = 1:int, a = 2.0:float)"),
        # declarations
        ("unsigned long int v = 1;", "ulong v = 1:ulong"),
        ("const float t[2][3] = {{1, 2, 3}, {4}};",
         "float[2][3] t = float[2][3]{float[3]{1.0:float, 2.0:float, 3.0:float}, float[3]{4.0:float, 0.0:float, 0.0:float}}"),
        ("int t[] = {1, 2, 3};", "int[3] t = int[3]{1:int, 2:int, 3:int}"),
        ("int t[2][2] = {1, 2, 3, 4};", "int[2][2] t = int[2][2]{int[2]{1:int, 2:int}, int[2]{3:int, 4:int}}"),
        ("int t[3] = {[1] = 5};", "int[3] t = int[3]{0:int, 5:int, 0:int}"),
        ("const int N = 2; int t[N * 2 + 1];", "int[5] t"),
        ("kk_shared(float, tile, 16, 16 + 1);", "float[16][17] tile"),
        ("int i = 1; { int i = 2; z[0] = i; }", "{int i_2 = 2:int; z[0:int] = i_2}"),
        ("half v = 0.1;", "half v = 0.0999755859375:half"),
        # names that other languages reserve
        ("int in = 1, sample = 2, half = 3, uint = 4; z[0] = in + sample + half + uint;",
         "z[0:int] = (((in + sample) + half) + uint)"),
        ("*z = *(x + n * 2) > *y;", "z[0:int] = int((x[(n * 2:int)] > y[0:int]))"),
        ("__shared__ int total; atomicAdd(&total, 1);", "kk_atomic_add(total, 1:int)"),
        ("volatile __local int t[2]; atomic_add(&t[0], 1);", "kk_atomic_add(t[0:int], 1:int)"),
        ("__shared__ float s[8], t[8]; __local float* p = s + 4; p[n] = 1;", "s[(p_at + n)] = 1.0:float"),
        ("local float t[4]; int local = 1; *(t + local) = 2;", "t[local] = 2.0:float"),
        ("atomic_add(z, 1);", "kk_atomic_add(z[0:int], 1:int)"),
        ("float f(float v);\nfloat f(float v) { return v; }\ny[0] = f(a);", "y[0:int] = f(a)"),
        # loops
        ("for (int i = 0, j = 1; i < n; i++, j--) z[i] = j;",
         "for (int i = 0:int, int j = 1:int; (i < n); (i++, j--)) {z[i] = j}"),
        ("for (;;) { break; }", "for (; ; ) {break}"),
        ("kk_unroll for (int i = 0; i < 4; i++) ;", "unroll for (int i = 0:int; (i < 4:int); i++) {}"),
        ("#pragma unroll\nfor (int i = 0; i < 4; i++) continue;",
         "unroll for (int i = 0:int; (i < 4:int); i++) {continue}"),
        ("do n--; while (n > 0);", "do {n--} while (n > 0:int)"),
        ("switch (n) { case 1: case 2: n = 5; case 3: n = 6; break; default: n = 7; }",
         "switch n 1/2: {n = 5:int} falls 3: {n = 6:int; break} default: {n = 7:int}"),
        # vectors
        ("float4 v = (float4)(1, 2, 3, 4); y[0] = v.x + v.w;", "y[0:int] = (v.x + v.w)"),
        ("kk_float4 v = kk_make_float4(a, a, a, a); v.xy = v.wz * 2;", "v.xy = (v.wz * float2(2.0:float))"),
        ("float3 v = {1, 2}; v += 1.5;", "v += float3(1.5:float) in float3"),
        ("float4 v = make_float4(x[0], 0, 0, 1); float4 w = {v.x, v.y}; v.s0 = w.g;", "v.x = w.y"),
        ("float2 p = make_float2(1, 2); float4 v = (float4)(p, p.yx);",
         "float4 v = float4{p.x, p.y, p.yx.x, p.yx.y}"),
        ("float4 v = (float4)(a); y[0] = dot(v, v);", "y[0:int] = dot(v, v)"),
        ("kk_store4(y, 4 * n, kk_load4(x, n));", "kk_store4(y, (4:int * n), kk_load4(x, n))"),
        ("int3 v = make_int3(1, 2, 3); z[0] = v[n];", "z[0:int] = v[n]"),
        # built-ins
        ("z[0] = kk_global_id(0) + kk_group_size(1);", "z[0:int] = (kk_global_id(0:int) + kk_group_size(1:int))"),
        ("kk_atomic_add(z[n], 1);", "kk_atomic_add(z[n], 1:int)"),
        ("kk_atomic_max(y[0], n);", "kk_atomic_max(y[0:int], float(n))"),
        ("y[0] = fmaxf(x[0], 0);", "y[0:int] = fmax(x[0:int], 0.0:float)"),
        ("z[0] = max(n, 3);", "z[0:int] = max(n, 3:int)"),
        ("y[0] = clamp(x[0], 0.0, 1.0);", "y[0:int] = clamp(x[0:int], 0.0:float, 1.0:float)"),
        ("z[0] = isnan(x[0]) ? 1 : 0;", "z[0:int] = (isnan(x[0:int]) ? 1:int : 0:int)"),
        ("z[0] = as_int(a) ^ __float_as_int(x[0]);", "z[0:int] = (as_int(a) ^ as_int(x[0:int]))"),
        ("y[0] = native_recip(a);", "y[0:int] = (1.0:float / a)"),
        ("y[0] = __fdividef(a, n);", "y[0:int] = (a / float(n))"),
        ("y[0] = pow(n, 2);", "y[0:int] = pow(float(n), 2.0:float)"),
        ('kk_print("here", n, 0.5);', "kk_print('here':text, n, 0.5:float)"),
        ("y[0] = INFINITY; z[0] = INT_MIN;", "z[0:int] = -2147483648:int"),
    ],
)  # fmt: skip
def test_a_body_becomes_a_typed_tree(read: Any, shown: Any, body: str, expected: str) -> None:
    assert shown(last(read, body)) == expected
    assert violations(read(body).module) == []


def test_variables_may_stand_behind_the_struct_that_they_have(read: Any, shown: Any) -> None:
    module = read(
        "struct pair { int a, b; } p = {1, 2}, q = p; struct { int a; } s; { struct { float v; } s; s.v = 1; } s.a = q.b;"
    ).module
    assert [struct.name for struct in module.structs] == ["pair", "s_struct", "s_struct_2"]


def test_a_body_may_begin_with_helper_functions_structs_and_constants(read: Any, shown: Any) -> None:
    module = read(
        """typedef struct { float3 at; int kind[2]; } particle;
struct pair { float a, b; };
const float LIMIT = 2.0f;
static const int TABLE[] = {1, 2, 4};
static inline float norm(float3 v) { return sqrt(dot(v, v)); }
void put(float to[], const float from[], int i, struct pair p) { to[i] = from[i] + p.a; p.b = LIMIT; }
__device__ int pick(int i) { if (i > 2) return 0; else return TABLE[i]; }

particle one = {{1, 2, 3}, {4, 5}};
struct pair p = {.b = 1, .a = n};
put(y, x, n, p);
y[1] = norm(one.at) + one.kind[pick(1)];
"""
    ).module
    assert [function.name for function in module.functions] == ["norm", "put", "pick"]
    assert [struct.name for struct in module.structs] == ["particle", "pair"]
    assert [shown(one) for one in module.constants] == [
        "float LIMIT = 2.0:float",
        "int[3] TABLE = int[3]{1:int, 2:int, 4:int}",
    ]
    assert {variable.name for variable in module.functions[1].changed} == {"p"}
    assert list(map(shown, module.kernel.body.statements)) == [
        "particle one = particle{float3{1.0:float, 2.0:float, 3.0:float}, int[2]{4:int, 5:int}}",
        "struct pair p = struct pair{float(n), 1.0:float}",
        "put(y, x, n, p)",
        "y[1:int] = (norm(one.at) + float(one.kind[pick(1:int)]))",
    ]


def test_spellings_of_cuda_and_opencl_mean_the_same(read: Any, shown: Any) -> None:
    ours = """kk_shared(float, t, 4, 5); kk_barrier(); kk_fence(); kk_atomic_add(z[0], 2); kk_atomic_add(z[n], 1);
kk_atomic_cas(z[0], 1, 2); kk_atomic_exchange(z[0], 1); y[0] = rsqrt(x[0]);"""
    theirs = """__shared__ float t[4][5]; barrier(CLK_LOCAL_MEM_FENCE); __threadfence(); atomicAdd(&z[0], 2); atomic_inc(&z[n]);
atomicCAS(&z[0], 1, 2); atomic_xchg(&z[0], 1); y[0] = rsqrtf(x[0]);"""
    assert shown(read(theirs).module.kernel.body) == shown(read(ours).module.kernel.body)


def test_a_pointer_into_an_array_becomes_an_offset(read: Any, shown: Any) -> None:
    body = """void swap(int* a, int* b) { int t = *a; *a = *b; *b = t; }
float total(const float* from, int n) { float sum = 0; while (n--) sum += *from++; return sum; }
const float* row = x + n * 4;
int v = 1, w = 2;
y += kk_group_id(0);
y[1] = row[2] + *row;
row++; row -= n; row = &x[3];
y[0] = total(row, 4) + total(x, n) + total(&y[2], 1);
swap(&v, &w); swap(z, z + 1);
float4 four = kk_load4(row, 4);
"""
    module = read(body).module
    assert violations(module) == []
    assert shown(module.functions[1].body) == (
        "{int from_at = 0:int; float sum = 0.0:float; while bool(n--) {sum += from[from_at++] in float}; return sum}"
    )
    assert list(map(shown, module.kernel.body.statements)) == [
        "int y_at = 0:int",
        "int row_at = (n * 4:int)",
        "int v = 1:int",
        "int w = 2:int",
        "y_at += kk_group_id(0:int) in int",
        "y[(y_at + 1:int)] = (x[(row_at + 2:int)] + x[row_at])",
        "row_at++",
        "row_at -= n in int",
        "row_at = 3:int",
        "y[y_at] = ((total(x + row_at, 4:int) + total(x, n)) + total(y + (y_at + 2:int), 1:int))",
        "swap(v, w)",
        "swap(z, z + 1:int)",
        "float4 four = kk_load4(x, (row_at + 4:int))",
    ]


def test_a_helper_function_hides_a_built_in_of_the_same_name(read: Any) -> None:
    (call,) = (
        node
        for node in tree.walk(read("float sign(float v) { return v; }\ny[0] = sign(a);").module.kernel.body)
        if isinstance(node, tree.Call | tree.BuiltinCall)
    )
    assert isinstance(call, tree.Call)


def test_a_barrier_in_a_helper_function_is_known_to_its_callers(read: Any) -> None:
    module = read("void meet() { kk_barrier(); }\nvoid both() { meet(); }\nboth();").module
    assert module.kernel.has_barrier and all(function.has_barrier for function in module.functions)
    assert not read("n = 1;").module.kernel.has_barrier


def test_parameters_that_a_function_changes_are_named(read: Any) -> None:
    kernel = read("n -= 1; a = 2; y[0] = u;").module.kernel
    assert {variable.name for variable in kernel.changed} == {"n", "a"}


def test_every_node_has_its_place(read: Any) -> None:
    body = "// comment\nint i =\n  n + 3; /* two\nlines */ z[i] = i;"
    declared, assigned = read(body).module.kernel.body.statements
    assert (declared.at.line, declared.at.column) == (2, 5)
    assert [(node.at.line, node.at.column) for node in tree.walk(declared.value)] == [(3, 5), (3, 3), (3, 7)]
    assert (assigned.at.line, assigned.at.column) == (4, 10)


def test_what_a_macro_writes_is_where_it_is_used_and_its_arguments_where_they_stand(read: Any) -> None:
    body = "#define ADD(p, q) ((p) + \\\n  (q) * TWO)\nz[0] = ADD(n,\n  7);"
    value = last(read, body, defines={"TWO": "2"}).expression.value
    places = {type(node).__name__ + str(getattr(node, "value", "")): node.at for node in tree.walk(value)}
    assert (places["Name"].line, places["Name"].column, places["Name"].macro) == (3, 12, "")
    assert (places["Literal7"].line, places["Literal7"].column) == (4, 3)
    assert (places["Literal2"].line, places["Literal2"].column, places["Literal2"].macro) == (3, 8, "ADD")


def test_lines_can_begin_with_another_number(read: Any) -> None:
    assert last(read, "\nn = 1;", first_line=100).at.line == 101


def test_the_same_body_gives_the_same_tree(read: Any, shown: Any) -> None:
    body = "for (int i = 0; i < n; i++) { if (x[i] > 0.5) continue; z[i] += i; }"
    assert shown(read(body).module.kernel.body) == shown(read(body).module.kernel.body)


def test_an_empty_body_is_allowed(read: Any) -> None:
    assert read(" ; // nothing\n").module.kernel.body.statements == ()


def test_no_finished_tree_has_an_open_type(read: Any) -> None:
    from kernelkeep.language.types import ANY_FLOAT, INVALID

    body = """float w[3] = {0.5, 1.0 / 3, n};
for (float t = 0; t < 1.0; t += 0.1) y[0] = (0.5, t > 0.5 ? 1.0 : n * 2.0);
kk_print(1.0 * n); (void_of(0.5) ? 1.0 : 2.0);
switch ((int)1.5) { case 1: a = pow(2, 0.5); }"""
    module = read("bool void_of(float v) { return v > 1.0 * 2; }\n" + body).module
    for function in (module.kernel, *module.functions):
        for node in tree.walk(function.body):
            assert getattr(node, "type", None) not in (ANY_FLOAT, INVALID)


def test_a_pointer_may_be_set_after_its_declaration(read: Any, shown: Any) -> None:
    body = """global float* p; const float* q;
if (n > 2) p = y + n; else p = &y[1];
q = x; p[2] = q[1]; p++;
n = p - y; if (p < y + n) n = 0;
"""
    module = read(body).module
    assert violations(module) == []
    assert list(map(shown, module.kernel.body.statements)) == [
        "int p_at",
        "int q_at",
        "if (n > 2:int) {p_at = n} else {p_at = 1:int}",
        "q_at = 0:int",
        "y[(p_at + 2:int)] = x[(q_at + 1:int)]",
        "p_at++",
        "n = (p_at - 0:int)",
        "if (p_at < n) {n = 0:int}",
    ]


def test_an_array_may_be_seen_as_another_type(read: Any, shown: Any) -> None:
    body = """kk_shared(uint2, pairs, 8);
float t[4][3];
__global float4* four = (__global float4*)y; float2* two = reinterpret_cast<float2*>(y + n);
uint* flat = (uint*)pairs; float* row = t[1]; float* one = &t[n][2];
float4 v = four[n]; four[1] = v; four[2].z = two[3].y; two[n] = v.xy; four[0] += v;
flat[n] = flat[3]; a = row[n] + *one;
"""
    module = read(body).module
    assert violations(module) == []
    assert list(map(shown, module.kernel.body.statements))[2:] == [
        "int four_at = 0:int",
        "int two_at = (n / 2:int)",
        "int flat_at = 0:int",
        "int row_at = (1:int * 3:int)",
        "int one_at = ((n * 3:int) + 2:int)",
        "float4 v = kk_load4(y, ((four_at + n) * 4:int))",
        "kk_store4(y, ((four_at + 1:int) * 4:int), v)",
        "y[(((four_at + 2:int) * 4:int) + 2:int)] = y[(((two_at + 3:int) * 2:int) + 1:int)]",
        "(y[((two_at + n) * 2:int)] = v.xy.x, y[(((two_at + n) * 2:int) + 1:int)] = v.xy.y)",
        "kk_store4(y, (four_at * 4:int), (kk_load4(y, (four_at * 4:int)) + v))",
        "pairs[((flat_at + n) / 2:int)][((flat_at + n) % 2:int)] = "
        "pairs[((flat_at + 3:int) / 2:int)][((flat_at + 3:int) % 2:int)]",
        "a = (t[((row_at + n) / 3:int)][((row_at + n) % 3:int)] + t[(one_at / 3:int)][(one_at % 3:int)])",
    ]


def test_words_of_opencl_and_cuda_are_read(read: Any) -> None:
    body = """__host__ __device__ __forceinline__ float twice(float v) { return 2 * v; }
float first(global const float* v, local float* s) { return v[0] + s[0]; }
local float tile[4]; int global = 3, private = 4;
global = private; tile[0] = 1;
y[0] = twice(first(x, tile)) + global + static_cast<int>(a);
"""
    assert violations(read(body).module) == []
