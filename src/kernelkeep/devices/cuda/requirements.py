"""What CUDA needs: NVIDIA's Python bindings and the compiler that comes with them, then a GPU."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from ...programs.source import Source
from ..requirements import Check, check, check_package

hint = "an NVIDIA GPU and its driver"
_PACKAGES = "pip install 'kernelkeep[cuda]'"


def needs() -> Iterator[Check]:
    yield check_package("cuda.bindings", "cuda-bindings", _PACKAGES)
    yield check("the CUDA compiler", _compile, _PACKAGES)


def _compile() -> str:
    from .compiler import compile_for

    nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
    _, major, minor = nvrtc.nvrtcVersion()
    compile_for(Source('extern "C" __global__ void nothing() {}', "nothing", "cuda"), "sm_80")
    return f"NVRTC {major}.{minor} compiles, which needs no GPU"
