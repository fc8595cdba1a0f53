"""Resident grids on every backend: on CUDA the grid itself, elsewhere the emulated one."""

from __future__ import annotations

import pytest

from kernelkeep.testing import ResidentTests


@pytest.mark.opencl
class TestOpenCL(ResidentTests):
    backend = "opencl"


@pytest.mark.cuda
class TestCUDA(ResidentTests):
    backend = "cuda"
    emulated = False
