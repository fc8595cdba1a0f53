"""The executor on every backend."""

from __future__ import annotations

import pytest

from kernelkeep.testing import ExecutorTests


@pytest.mark.opencl
class TestOpenCL(ExecutorTests):
    backend = "opencl"


@pytest.mark.opengl
class TestOpenGL(ExecutorTests):
    backend = "opengl"


@pytest.mark.cuda
class TestCUDA(ExecutorTests):
    backend = "cuda"
