"""The conformance suite on OpenGL."""

from __future__ import annotations

import numpy as np
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
    def test_uniforms_that_cannot_be_passed_are_unsupported(
        self, device: kk.Device, declaration: str, use: str, named: str
    ) -> None:
        text = (
            "#version 430\nlayout(local_size_x = 1) in;\nlayout(std430, binding = 0) buffer Y { int y[]; };\n"
            f"{declaration}\nvoid main() {{ y[0] = {use}; }}\n"
        )
        with pytest.raises(kk.Unsupported, match=named):
            device.build(kk.Source(text, name="uniforms", language="glsl"))

    def test_a_barrier_is_one_statement(self, device: kk.Device) -> None:
        kernel = kk.PortableKernel(
            "meet",
            params=[kk.Buffer("y", "i4"), kk.Scalar("n", "i4")],
            body="""kk_shared(int, part, 16);
                    int l = kk_local_id(0);
                    part[l] = l;
                    if (n > 0) kk_barrier(); else y[l] = -1;
                    y[l] = part[15 - l];""",
            group=16,
        )
        (y,) = self.run(device, kernel, 1, np.zeros(16, "i4"), 1)
        assert y.tolist() == list(range(15, -1, -1))

    def test_launches_of_one_batch_keep_their_own_state(self, device: kk.Device) -> None:
        text = (
            "#version 430\nlayout(local_size_x = 1) in;\nlayout(std430, binding = 0) buffer Y { uint y[]; };\n"
            "uniform float value;\nvoid main() { y[0] = floatBitsToUint(value) ^ (y[0] << 1); }\n"
        )
        loose = device.build(kk.Source(text, name="loose", language="glsl")).kernel()
        shifted = kk.PortableKernel(
            "shifted", params=[kk.Buffer("y", "u4"), kk.Scalar("a", "u4")], body="y[0] = y[0] * 5u + a;", group=1
        )
        block = device.build(shifted.source(device)).kernel()
        first, second = (device.array(np.ones(1, "u4")) for _ in range(2))
        expected = [1, 1]
        for at in range(40):
            # Another array or another value now and then, launches that repeat, and -0.0 behind 0.0, which it equals.
            which = at // 4 % 2
            array = (first, second)[which]
            for value in (0.0, -0.0):
                loose.launch(1, (array, np.float32(value)))
                expected[which] = int(np.float32(value).view("u4")) ^ (expected[which] << 1 & 0xFFFFFFFF)
            for _ in range(2):
                block.launch(1, (array, np.uint32(at // 3)))
                expected[which] = (expected[which] * 5 + at // 3) & 0xFFFFFFFF
        assert [int(first.numpy()[0]), int(second.numpy()[0])] == expected
