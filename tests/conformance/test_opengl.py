"""The conformance suite on OpenGL."""

from __future__ import annotations

import pytest

import kernelkeep as kk
from kernelkeep.testing import DeviceTests

pytestmark = pytest.mark.opengl


class TestOpenGL(DeviceTests):
    backend = "opengl"

    @pytest.mark.parametrize(
        ("declaration", "use", "named"),
        [
            ("uniform sampler2D pixels;", "int(texelFetch(pixels, ivec2(0), 0).x)", "pixels"),
            ("layout(r32i) uniform iimage2D grid;", "imageLoad(grid, ivec2(0)).x", "grid"),
            ("layout(binding = 0) uniform atomic_uint hits;", "int(atomicCounter(hits))", "hits"),
            ("uniform int weights[4];", "weights[3]", "weights"),
            ("layout(std140, binding = 0) uniform Block { int inside[4]; };", "inside[3]", "inside"),
        ],
    )
    def test_uniforms_that_cannot_be_given_are_refused(
        self, device: kk.Device, declaration: str, use: str, named: str
    ) -> None:
        text = (
            "#version 430\nlayout(local_size_x = 1) in;\nlayout(std430, binding = 0) buffer Y { int y[]; };\n"
            f"{declaration}\nvoid main() {{ y[0] = {use}; }}\n"
        )
        with pytest.raises(kk.Unsupported, match=named):
            device.build(kk.Source(text, name="uniforms", language="glsl"))
