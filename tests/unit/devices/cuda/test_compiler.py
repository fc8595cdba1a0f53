"""NVRTC, as the compiler of CUDA C calls it."""

from __future__ import annotations

from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.devices.cuda import compiler, toolkit
from kernelkeep.devices.cuda.bindings import load_bindings
from kernelkeep.testing import skip_backend


@pytest.mark.cuda
def test_a_failure_without_a_log_is_named_and_harms_no_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty log has one byte, and Python has one object for each byte."""
    try:
        toolkit.compiler_version()
    except kk.DeviceError as error:
        skip_backend("cuda", str(error))
    nvrtc = load_bindings("nvrtc")

    class Failing:
        def __getattr__(self, name: str) -> Any:
            return getattr(nvrtc, name)

        def nvrtcCompileProgram(self, *_: Any) -> tuple[Any]:
            return (nvrtc.nvrtcResult.NVRTC_ERROR_INTERNAL_ERROR,)

    monkeypatch.setattr(compiler, "load_bindings", lambda _: Failing())
    with pytest.raises(kk.CompileError, match="NVRTC_ERROR_INTERNAL_ERROR"):
        compiler.compile_for(kk.Source("", "k", "cuda"), "sm_90")
    assert bytes([32]).hex() == "20"
