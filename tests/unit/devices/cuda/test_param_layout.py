"""Where arguments lie, as the cubin tells it."""

from __future__ import annotations

import pytest

import kernelkeep as kk
from kernelkeep.devices.binary import Binary
from kernelkeep.devices.cuda import compiler, toolkit
from kernelkeep.devices.cuda.param_layout import param_layout, placed
from kernelkeep.programs.signature import Parameter
from kernelkeep.testing import skip_backend

pytestmark = pytest.mark.cuda
TEXT = """
struct Three { float a, b, c; };
extern "C" __global__ void mixed(const float* x, char c, double d, Three t, short s, int* y) { y[0] = x[0] + c + d + t.c + s; }
extern "C" __global__ void plain(float* x, float a, int n) { x[n] = a; }
extern "C" __global__ void nothing() {}
//kk: kernel lied x:buffer:f4:rw n:scalar:i8:r
extern "C" __global__ void lied(float* x, int n) { x[n] = 1; }
"""


@pytest.fixture(scope="module", params=["sm_75", "sm_90", "sm_100"])
def binary(request: pytest.FixtureRequest) -> Binary:
    try:
        toolkit.compiler_version()
    except kk.DeviceError as error:
        skip_backend("cuda", str(error))
    return Binary.decode(compiler.compile_for(kk.Source(TEXT, "layouts", "cuda"), request.param), "cuda")


def params_of(binary: Binary, name: str) -> tuple[Parameter, ...]:
    (found,) = (one for one in binary.kernels if one.name == name)
    return found.params or ()


def test_a_cubin_tells_offsets_and_sizes(binary: Binary) -> None:
    assert param_layout(binary.payload, "mixed") == [(0, 8), (8, 1), (16, 8), (24, 12), (36, 2), (40, 8)]
    assert param_layout(binary.payload, "plain") == [(0, 8), (8, 4), (12, 4)]
    assert param_layout(binary.payload, "missing") is None


def test_a_compiled_program_has_them(binary: Binary) -> None:
    assert [(p.name, p.slot, p.nbytes) for p in params_of(binary, "plain")] == [("x", 0, 8), ("a", 8, 4), ("n", 12, 4)]
    assert [(p.slot, p.nbytes) for p in params_of(binary, "mixed")][3] == (24, 12)
    assert params_of(binary, "nothing") == ()


def test_what_the_declaration_says_otherwise_is_left_to_the_driver(binary: Binary) -> None:
    assert [p.slot for p in params_of(binary, "lied")] == [-1, -1]


@pytest.mark.parametrize("cut", [0, 10, 64, 500, 2000])
def test_a_damaged_cubin_tells_nothing_or_what_it_has(binary: Binary, cut: int) -> None:
    whole = param_layout(binary.payload, "plain")
    assert param_layout(binary.payload[:cut], "plain") in (None, whole)


def test_more_or_fewer_parameters_than_declared_do_not_fit() -> None:
    params = (Parameter("x", "buffer", "f4"), Parameter("n", "scalar", "i4", nbytes=4))
    assert placed(params, [(0, 8)]) is None and placed(params, [(0, 8), (8, 8)]) is None
    known = placed(params, [(0, 8), (8, 4)])
    assert known is not None and [p.slot for p in known] == [0, 8]
