"""Generated kernels mean the same on every backend: integers are equal, floats within 2 units in the last place per operation.

More of them: python -m kernelkeep.testing.generated_kernels --device opencl --count 1000
"""

from __future__ import annotations

import random

import pytest

import kernelkeep as kk
from kernelkeep.testing import open_or_skip
from kernelkeep.testing.generated_kernels import Found, generated_kernel, search
from kernelkeep.testing.generated_kernels.execution import combined

BACKENDS = [pytest.param(one, marks=getattr(pytest.mark, one)) for one in ("opencl", "opengl", "webgpu", "cuda")]


def text(found: list[Found]) -> str:
    return "\n".join(f"--- seed {one.seed}\n" + "\n".join(one.lines) + f"\n{one.body}" for one in found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_generated_kernels_give_what_the_reference_device_gives(backend: str) -> None:
    with open_or_skip(backend) as device:
        is_pocl = "Portable Computing Language" in device.info.driver
    seeds = [*range(6), *(random.randrange(1 << 32) for _ in range(2))]
    # With its optimiser, PoCL 3.0 gives all work-items of a group the same `a` behind a barrier, after
    #     if (n > 5 && x[i] > 3) a = 2; else a = 3;
    # So kernels with barriers are compared without it. No difference was seen in kernels without barriers.
    waiting = [one for one in seeds if "kk_barrier" in generated_kernel(one).kernel.body] if is_pocl else []
    found = search(backend, [one for one in seeds if one not in waiting], batch=4, seconds_to_shrink=20)
    found += search(backend, waiting, batch=4, seconds_to_shrink=20, options=["-cl-opt-disable"])
    assert not found, text(found)


def test_cuda_compiles_many_generated_kernels_in_one_program() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from kernelkeep.devices.cuda.compiler import compile_for

    language = "cuda"
    programs = [generated_kernel(seed) for seed in range(100, 108)]
    compile_for(kk.Source(combined(programs, language), name="many", language=language), "sm_90")
