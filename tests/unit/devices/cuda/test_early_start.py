"""Kernels that may start early: what is compiled for which architecture, and what the machine code confirms."""

from __future__ import annotations

import pytest

import kernelkeep as kk
from kernelkeep.devices.binary import Binary
from kernelkeep.devices.cuda.compiler import compile_for
from kernelkeep.devices.cuda.early_start import WAITS_FIRST, waits_first, with_early_start

pytest.importorskip("cuda.bindings.nvrtc")

WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
SUM = kk.PortableKernel(
    "neighbours",
    params=[kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("n", "i4")],
    body="""kk_shared(float, tile, 256);
            int i = kk_global_id(0);
            tile[kk_local_id(0)] = i < n ? x[i] : 0.0f;
            kk_barrier();
            if (i < n) y[i] += tile[255 - kk_local_id(0)];""",
)


def compiled(source: kk.Source, architecture: str = "sm_90") -> Binary:
    return Binary.decode(compile_for(source, architecture), "cuda")


@pytest.mark.parametrize("architecture", ["sm_90", "sm_90a", "sm_100", "sm_120"])
def test_portable_kernels_wait_before_they_touch_memory(architecture: str) -> None:
    assert WAITS_FIRST in compiled(SUM.source("cuda"), architecture).numbers


def test_kernels_with_shared_memory_let_the_next_one_start_at_their_end() -> None:
    plain = kk.PortableKernel("fill", params=[kk.Buffer("y", "f4", "w")], body="y[kk_global_id(0)] = 1.0f;")
    assert "launch_dependents" in with_early_start(plain.source("cuda").text, "sm_90")
    shared = with_early_start(SUM.source("cuda").text, "sm_90")
    assert WAIT in shared and "launch_dependents" not in shared


def test_older_architectures_have_no_such_instruction() -> None:
    text = SUM.source("cuda").text
    assert with_early_start(text, "sm_80") == text
    assert WAITS_FIRST not in compiled(SUM.source("cuda"), "sm_80").numbers


def test_lines_stay_where_they_are() -> None:
    text = SUM.source("cuda").text
    changed = with_early_start(text, "sm_90").split("\n")
    different = [(old, new) for old, new in zip(text.split("\n"), changed, strict=True) if old != new]
    assert len(different) == 1 and different[0][1].startswith(different[0][0])


@pytest.mark.parametrize(
    ("statements", "waits"),
    [
        (f"{WAIT} y[threadIdx.x] = 1;", True),
        ("y[threadIdx.x] = 1;", False),
        (f"float v = *(volatile float*)y; {WAIT} y[threadIdx.x] = v;", False),
        (f"y[threadIdx.x] = 1; {WAIT}", False),
        (f"if (threadIdx.x < 32) {{ {WAIT} }} y[threadIdx.x] = 1;", False),
        (f"atomicAdd(y, 1.0f); {WAIT}", False),
    ],
)
def test_the_machine_code_decides(statements: str, waits: bool) -> None:
    text = f'extern "C" __global__ void kernel(float* y) {{ {statements} }}'
    assert waits_first(compiled(kk.Source(text, name="kernel", language="cuda")).payload) is waits


def test_all_kernels_of_a_program_must_wait() -> None:
    both = "".join(
        f'extern "C" __global__ void {name}(float* y) {{ {wait} y[0] = 1; }}' for name, wait in (("a", WAIT), ("b", ""))
    )
    assert not waits_first(compiled(kk.Source(both, name="both", language="cuda")).payload)


@pytest.mark.parametrize("damaged", [b"", b"\x7fELF", b"\x7fELF" + bytes(200), b"\xff" * 300])
def test_damaged_bytes_confirm_nothing(damaged: bytes) -> None:
    assert not waits_first(damaged)
