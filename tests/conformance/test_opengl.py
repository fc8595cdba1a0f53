"""The conformance suite on OpenGL."""

from __future__ import annotations

import pytest

from kernelkeep.testing import DeviceTests

pytestmark = pytest.mark.opengl


class TestOpenGL(DeviceTests):
    backend = "opengl"
