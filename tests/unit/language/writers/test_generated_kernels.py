"""What generated kernels use: waiting for all groups, a clock, unrolling by a number, arrays that do not overlap."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import kernelkeep as kk
from kernelkeep.devices.cuda.compiler import compile_for
from kernelkeep.language import writers
from kernelkeep.language.builtins import system_builtins
from kernelkeep.language.readers.c import read_body
from kernelkeep.language.tree import kernel_parameter

Write = Callable[..., str]

WAITING = """
void wait_for_all(uint* control, uint meeting, uint groups) {
    kk_fence();
    kk_barrier();
    if (kk_local_id(0) == 0) {
        kk_atomic_add(control[3], 1u);
        while (kk_atomic_load(control[3]) < meeting * groups) { }
        kk_fence();
    }
    kk_barrier();
}
uint meeting = 0u;
unsigned long long start = kk_clock();
for (int k = 0; k < n; k++) {
    if (kk_global_id(0) == 0 && kk_clock() - start > n * 1000ull) kk_atomic_store(control[1], 1u);
    wait_for_all(control, ++meeting, (uint)kk_group_count(0));
    while (kk_atomic_load(control[5]) != 0u) kk_pause();
}
kk_fence_system();
"""


def generated(target: str) -> str:
    parameters = [kernel_parameter("control", "u4", "rw"), kernel_parameter("n", "i4")]
    reading = read_body("k", parameters, WAITING, extra=system_builtins(), group=(64,))
    assert not reading.warnings
    return writers.write(target, reading.module, writers.Entry("// k", "k", (64, 1, 1))).text


def test_groups_wait_for_each_other_in_cuda() -> None:
    text = generated("cuda")
    assert (
        """\
__device__ void wait_for_all(unsigned int* control, unsigned int meeting, unsigned int groups) {
    __threadfence();
    __syncthreads();
    if ((int)threadIdx.x == 0) {
        atomicAdd(&control[3], 1u);
        while (*(volatile unsigned int*)&control[3] < meeting * groups) {
        }
        __threadfence();
    }
    __syncthreads();
}
"""
        in text
    )
    assert "kk_clock() - start > (unsigned long long)n * 1000ull" in text
    assert "*(volatile unsigned int*)&control[1] = 1u;" in text
    assert "__nanosleep(2000);" in text and "__threadfence_system();" in text


def test_nvrtc_compiles_what_waits() -> None:
    try:
        assert compile_for(kk.Source(generated("cuda"), name="k", language="cuda"), "sm_90")
    except kk.CompileError:
        raise
    except kk.DeviceError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("target", ["opencl", "glsl"])
def test_only_cuda_has_a_clock(target: str) -> None:
    with pytest.raises(kk.Unsupported, match=r"kernel k, line 13: .* has no kk_clock"):
        generated(target)


def test_a_body_of_a_user_has_no_clock(written: Write) -> None:
    with pytest.raises(kk.CompileError, match="unknown function kk_clock"):
        written("cuda", "x[0] = kk_clock();")


@pytest.mark.parametrize("how", ["kk_unroll(2 * 2) ", "#pragma unroll 4\n", "#define BY 4\n#pragma unroll (BY)\n"])
def test_a_loop_is_unrolled_by_a_number(written: Write, how: str) -> None:
    body = f"{how}for (int i = 0; i < n; i++) x[i] = 0;"
    assert "    #pragma unroll 4\n    for (" in written("cuda", body)
    assert "    kk_unroll_4\n    for (" in (text := written("opencl", body))
    assert '#define kk_unroll_4 _Pragma("unroll 4")' in text
    assert "unroll" not in written("glsl", body)


@pytest.mark.parametrize("word", ["restrict", "__restrict__"])
def test_arrays_of_a_function_that_do_not_overlap(written: Write, word: str) -> None:
    body = f"void copy(const float* {word} from, float* to) {{ to[0] = from[1]; }}\ncopy(x, x);"
    assert "void copy(const float* __restrict__ from, float* to) {" in written("cuda", body)
    assert "void copy(__global const float* restrict from, __global float* to) {" in written("opencl", body)
    assert "void copy() {\n    x[0] = x[1];" in written("glsl", body)
