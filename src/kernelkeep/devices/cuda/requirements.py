"""What CUDA needs: NVIDIA's Python bindings and the compiler that comes with them, then a GPU."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from ...installation import install_command
from ..requirements import Check, check, check_package

hint = "an NVIDIA GPU and its driver"


def needs() -> Iterator[Check]:
    packages = install_command("cuda")
    yield check_package("cuda.bindings", "cuda-bindings", packages)
    yield check("the CUDA compiler", _compile, packages)


def _compile() -> str:
    from ...programs.source import Source
    from .compiler import compile_for

    nvrtc: Any = importlib.import_module("cuda.bindings.nvrtc")
    _, major, minor = nvrtc.nvrtcVersion()
    compile_for(Source('extern "C" __global__ void nothing() {}', "nothing", "cuda"), "sm_80")
    return f"NVRTC {major}.{minor} compiles, which needs no GPU"
