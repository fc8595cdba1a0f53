"""Kernel signatures: declared in a comment, or read from the function's head."""

from __future__ import annotations

import pytest

from kernelkeep.programs.signature import (
    KernelSignature,
    Parameter,
    declaration,
    declared,
    read_heads,
    same_kernel,
)

FULL = KernelSignature(
    "saxpy",
    (
        Parameter("x", "buffer", "f4", "r"),
        Parameter("y", "buffer", None, "rw"),
        Parameter("a", "scalar", "f4", "r", 4),
        Parameter("n", "scalar", "i8", "r", 8),
    ),
    (16, 4, 1),
)


@pytest.mark.parametrize(
    "signature",
    [FULL, KernelSignature("bare", ()), KernelSignature("no_group", FULL.params), KernelSignature("g", (), (1, 1, 1))],
)
def test_a_written_declaration_reads_back_the_same(signature: KernelSignature) -> None:
    text = f"#version 430\n{declaration(signature)}\nvoid main() {{}}\n"
    assert declared(text) == {signature.name: signature}


def test_a_declaration_with_extra_spaces_and_unknown_types_is_read() -> None:
    found = declared(
        "  //kk: kernel f   x:buffer:f4:r   n:scalar:i4\n//kk: kernel g group(8,8,1) y:buffer:?\n// kk: kernel h\n"
    )
    assert sorted(found) == ["f", "g"]
    assert found["f"].group is None
    assert [(p.name, p.kind, p.dtype, p.access) for p in found["f"].params or ()] == [
        ("x", "buffer", "f4", "r"),
        ("n", "scalar", "i4", "rw"),
    ]
    assert found["g"] == KernelSignature("g", (Parameter("y", "buffer", None, "rw"),), (8, 8, 1))


def kinds(text: str) -> dict[str, list[tuple[str, str, str | None]]]:
    return {name: [(p.name, p.kind, p.dtype) for p in s.params or ()] for name, s in read_heads(text).items()}


SAXPY = [("x", "buffer", "f4"), ("y", "buffer", "f4"), ("a", "scalar", "f4"), ("n", "scalar", "i4")]


@pytest.mark.parametrize(
    "head",
    [
        'extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {',
        'extern "C" __global__ void\nsaxpy(const float *__restrict__ x,\n      float * __restrict__ y, const float a, int n)\n{',
        "__global__ void __launch_bounds__(256) saxpy(float const* x, float* y, float a, int32_t n) {",
        "__global__ void __launch_bounds__(256, 2) saxpy(const float x[], float y[], float a, signed int n) {",
        "__global__ __launch_bounds__(64) void saxpy(const float* x, float* y, float a, int n) {",
        "__kernel void saxpy(__global const float* x, __global float* y, float a, int n) {",
        "kernel void saxpy(global const float* restrict x, global float* y, const float a, const int n) {",
        "__kernel __attribute__((reqd_work_group_size(8, 1, 1))) void\n"
        "saxpy(__global const float* x, __global float* y, float a, int n) {",
        "__kernel void saxpy(__constant float* x, __global float* y, /* scale */ float a, int n // how many\n) {",
    ],
)
def test_function_heads_of_cuda_and_opencl_are_read(head: str) -> None:
    assert kinds(head + " }") == {"saxpy": SAXPY}


def test_every_c_type_has_its_dtype() -> None:
    text = """__global__ void f(unsigned char a, char b, unsigned short c, short d, unsigned int e, unsigned f, uint32_t g,
        long long h, unsigned long long i, size_t j, double k, uint64_t l, int8_t m) {}"""
    dtypes = [dtype for _, _, dtype in kinds(text)["f"]]
    assert dtypes == ["u1", "i1", "u2", "i2", "u4", "u4", "u4", "i8", "u8", "u8", "f8", "u8", "i1"]


def test_unknown_types_have_no_dtype() -> None:
    text = "__global__ void f(MyStruct s, float4* v, Pair<int, float> p, T* t) {}"
    assert kinds(text)["f"] == [
        ("s", "scalar", None),
        ("v", "buffer", None),
        ("p", "scalar", None),
        ("t", "buffer", None),
    ]


def test_local_memory_is_a_kind_of_its_own() -> None:
    text = "__kernel void f(__local float* tile, local int* other, __global int* x) {}"
    assert [kind for _, kind, _ in kinds(text)["f"]] == ["local", "local", "buffer"]


def test_a_pointer_to_const_is_read_only() -> None:
    (signature,) = read_heads("__global__ void f(const int* a, int* const b, int* c) {}").values()
    assert [p.access for p in signature.params or ()] == ["r", "rw", "rw"]


def test_all_kernels_are_found_and_no_other_functions() -> None:
    text = """
    __device__ float helper(float x) { return x; }
    // __global__ void commented(int x) {}
    __global__ void forward(int x);
    __global__ void one() { helper(1); }
    __global__ void two(void) {}
    static const int table[2] = {1, 2};
    __global__ void three(int* x) { if (x) { *x = 1; } }
    """
    assert {name: len(params) for name, params in kinds(text).items()} == {"one": 0, "two": 0, "three": 1}
    assert kinds("int kernel_size(int x) { return x; }") == {}


@pytest.mark.parametrize(
    ("symbol", "name", "same"),
    [
        ("axpy", "axpy", True),
        ("_Z4axpyPff", "axpy", True),
        ("_Z4axpyPff", "axp", False),
        ("_Z5axpy2Pf", "axpy", False),
        ("axpy2", "axpy", False),
    ],
)
def test_a_mangled_symbol_is_the_kernel_of_that_exact_name(symbol: str, name: str, same: bool) -> None:
    assert same_kernel(symbol, name) is same
