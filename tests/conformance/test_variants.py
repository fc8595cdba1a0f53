"""Templates, tuning and choosing on every backend."""

from __future__ import annotations

import pytest

from kernelkeep.testing import VariantTests


@pytest.mark.opencl
class TestOpenCL(VariantTests):
    backend = "opencl"


@pytest.mark.opengl
class TestOpenGL(VariantTests):
    backend = "opengl"


@pytest.mark.cuda
class TestCUDA(VariantTests):
    backend = "cuda"
