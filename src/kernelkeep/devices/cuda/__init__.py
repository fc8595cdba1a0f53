"""CUDA through cuda-bindings: NVRTC compiles, the driver API runs.

Compiling needs no GPU and no driver (`compile_for`): NVRTC from PyPI compiles for any architecture it knows. Running uses the
device's primary context, so memory of CuPy, PyTorch and JAX can be used without a copy.
"""

from __future__ import annotations

from .ahead import ahead
from .compiler import compile_for, compiler_version
from .device import CudaDevice, open_device
from .driver import list_devices
from .requirements import hint, needs

__all__ = [
    "CudaDevice",
    "ahead",
    "compile_for",
    "compiler_version",
    "hint",
    "language",
    "list_devices",
    "needs",
    "open_device",
]

language = "cuda"
