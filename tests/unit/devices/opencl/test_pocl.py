"""What PoCL compiles for decides which tuning results are a good guess."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.fingerprint import cpu_vectors
from kernelkeep.devices.opencl.pocl import vectors_used
from kernelkeep.devices.opencl.pocl_cpu import compiled_for


@pytest.mark.parametrize(
    ("target", "of_cpu", "used"),
    [
        ("pthread-x86_64-unknown-linux-gnu-znver3", "avx512f", "avx2"),  # LLVM 14 on a Zen 4
        ("pthread-x86_64-unknown-linux-gnu-znver3", "avx2", "avx2"),
        ("cpu-x86_64-pc-linux-gnu-znver4", "avx512f", "avx512f"),
        ("pthread-x86_64-pc-linux-gnu-skylake-avx512", "avx512f", "avx512f"),
        ("pthread-x86_64-pc-linux-gnu-skylake", "avx512f", "avx2"),
        ("pthread-x86_64-pc-linux-gnu-haswell", "avx", "avx"),  # a virtual machine hides some
        ("cpu-aarch64-unknown-linux-gnu-neoverse-n1", "asimd", "asimd"),
        ("something else", "avx512f", "avx512f"),
    ],
)
def test_an_old_llvm_leaves_new_instructions_alone(target: str, of_cpu: str, used: str) -> None:
    device = SimpleNamespace(int_ptr=0, version=f"OpenCL 3.0 PoCL HSTR: {target}")
    assert vectors_used(compiled_for(device), of_cpu) == used


@pytest.mark.parametrize(("type_name", "width"), [("float", 8), ("float", 16), ("double", 8), ("double", 16)])
def test_long_vectors_reach_built_in_functions_whole(pocl: str, type_name: str, width: int) -> None:
    """Also on a CPU that LLVM has no name for: with the wrong one, PoCL's functions expect the vectors in other registers."""
    text = f"__kernel void f(__global {type_name}{width} *x) {{ x[0] = atan2(x[0], x[0] + 1); }}"
    x = np.linspace(0.1, 2, width).astype({"float": "f4", "double": "f8"}[type_name])
    with kk.open_device(pocl) as device:
        if device.cl_device.version.endswith("-znver3") and cpu_vectors() == "avx512f" and x.nbytes > 32:  # type: ignore[attr-defined]
            pytest.skip("LLVM 14 takes a Zen 4 for a Zen 3, and PoCL its functions for the Zen 4")
        y = device.array(x)
        with device.build(kk.Source(text, name="f", language="opencl")) as program:
            program.kernel("f").launch(grid=1, args=(y,), group=1)
            np.testing.assert_allclose(y.numpy(), np.arctan2(x, x + 1), rtol=1e-5)
