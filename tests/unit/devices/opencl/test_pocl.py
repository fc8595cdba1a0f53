"""What PoCL compiles for decides which tuning results are a good guess."""

from __future__ import annotations

import pytest

from kernelkeep.devices.opencl.pocl import vectors_used


@pytest.mark.parametrize(
    ("compiled_for", "of_cpu", "used"),
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
def test_an_old_llvm_leaves_new_instructions_alone(compiled_for: str, of_cpu: str, used: str) -> None:
    assert vectors_used(f"OpenCL 3.0 PoCL HSTR: {compiled_for}", of_cpu) == used
