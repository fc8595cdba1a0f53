"""Resident grids on every backend: on CUDA the grid itself, elsewhere the emulated one."""

from __future__ import annotations

import pytest

from kernelkeep.testing import ResidentTests
from kernelkeep.testing.resident_parts.pausing import PausingTests
from kernelkeep.testing.resident_parts.wide import WideTests


@pytest.mark.opencl
class TestOpenCL(ResidentTests):
    backend = "opencl"


@pytest.mark.opengl
class TestOpenGL(WideTests, PausingTests):
    backend = "opengl"
    blocks = 3


class TestReference(WideTests):
    backend = "reference"


@pytest.mark.cuda
class TestCUDA(ResidentTests):
    backend = "cuda"
    emulated = False
    tasks_each = 500
