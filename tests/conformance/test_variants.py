"""Templates, tuning and choosing on every backend."""

from __future__ import annotations

import pytest

from kernelkeep.testing import VariantTests


@pytest.mark.opencl
class TestOpenCL(VariantTests):
    backend = "opencl"
    heavy_steps_on_cpu = 50


@pytest.mark.opengl
class TestOpenGL(VariantTests):
    backend = "opengl"
    out_of_bounds_write = "wrong"


@pytest.mark.cuda
class TestCUDA(VariantTests):
    backend = "cuda"
