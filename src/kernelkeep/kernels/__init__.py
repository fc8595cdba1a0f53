"""Kernels that are ready to use.

from kernelkeep.kernels import conv2d, gemm

Each is a tuned template: the fastest variant known for the device and the problem runs, and it is correct from the first call
on. Records for some common devices are shipped, so a new user need not tune.
"""

from __future__ import annotations

# The functions take the place of the folders of the same names; what they need is loaded at the first call.
from .conv2d import conv2d
from .gemm import gemm

__all__ = ["conv2d", "gemm"]
