"""Four floats at a time, loops written out, and shared arrays whose sizes are macros of the body."""

from __future__ import annotations

import numpy as np
import pytest

from ...devices.base import Device
from ...errors import CompileError
from ...programs.portable import Buffer, PortableKernel, Scalar
from .common import SAXPY, DevicePart, groups

__all__ = ["VectorTests"]

_GROUP = 32


class VectorTests(DevicePart):
    """The same body does the same everywhere, whether the language has vectors of its own or not."""

    def test_buffers(self, device: Device) -> None:
        kernel = PortableKernel(
            "turn",
            params=[Buffer("x", "f4", "r"), Buffer("y", "f4", "rw"), Scalar("quads", "i4")],
            body="""int i = kk_global_id(0);
                    if (i < quads) {
                        kk_float4 v = kk_load4(x, 4 * i);
                        kk_float4 old = kk_load4(y, 4 * (quads - 1 - i));
                        old.x += v.w;
                        kk_store4(y, 4 * (quads - 1 - i), kk_make_float4(old.x, old.y + v.z, old.z + v.y, old.w + v.x));
                    }""",
            group=_GROUP,
        )
        quads = 101
        x = np.arange(4 * quads, dtype="f4")
        y = np.full(4 * quads + 4, 0.5, "f4")
        _, result = self.run(device, kernel, groups(quads, _GROUP), x, y, quads)
        assert result[: 4 * quads].tolist() == (x[::-1] + 0.5).tolist()
        assert result[4 * quads :].tolist() == [0.5] * 4

    def test_shared_arrays_sized_by_macros(self, device: Device) -> None:
        kernel = PortableKernel(
            "transpose",
            params=[Buffer("x", "f4", "r"), Buffer("y", "f4", "w")],
            body="""// A comment may come first.
                    #define QUADS (SIDE / 4)
                    #define STRIDE \\
                        (SIDE + 4)
                    kk_shared(float, tile, SIDE * STRIDE > 64 ? SIDE * STRIDE : 64);
                    kk_shared(int, late, QUADS);
                    int i = kk_local_id(0);
                    int row = i / QUADS, col = i % QUADS * 4;
                    late[i % QUADS] = 0;
                    kk_float4 v = kk_load4(x, row * SIDE + col);
                    tile[col * STRIDE + row] = v.x;
                    tile[(col + 1) * STRIDE + row] = v.y;
                    tile[(col + 2) * STRIDE + row] = v.z;
                    tile[(col + 3) * STRIDE + row] = v.w;
                    kk_barrier();
                    v = kk_load4(tile, row * STRIDE + col);
                    kk_barrier();
                    v.w += kk_float(late[0]);
                    kk_store4(tile, row * STRIDE + col, v);
                    kk_barrier();
                    kk_unroll for (int j = 0; j < 4; j++) y[row * SIDE + col + j] = tile[row * STRIDE + col + j];""",
            group=16 * 4,
            defines={"SIDE": 16},
        )
        x = np.arange(256, dtype="f4").reshape(16, 16)
        _, y = self.run(device, kernel, 1, x, np.zeros_like(x))
        assert (y == x.T).all()

    def test_unrolled_loops_give_the_same(self, device: Device) -> None:
        kernel = PortableKernel(
            "powers",
            params=[Buffer("y", "f4", "w")],
            body="""float powers[COUNT];
                    powers[0] = 1.0f;
                    kk_unroll for (int i = 1; i < COUNT; i++) powers[i] = powers[i - 1] * kk_float(kk_local_id(0));
                    kk_unroll
                    for (int i = 0; i < COUNT; i++) {
                        int at = (kk_local_id(0) * COUNT + i) * 2;
                        kk_unroll for (int j = 0; j < 2; j++) y[at + j] = powers[i] + kk_float(j);
                    }""",
            group=4,
            defines={"COUNT": 5},
        )
        (y,) = self.run(device, kernel, 1, np.zeros((4, 5, 2), "f4"))
        expected = np.arange(4)[:, None, None] ** np.arange(5)[None, :, None] + np.arange(2)
        assert (y == expected).all()

    def test_error_lines_are_the_users_lines(self, device: Device) -> None:
        body = "#define SIZE 8\n\nkk_shared(float, tile, SIZE);\nkk_store4(tile, 0, kk_load4(y, 0));\nno_such_name = 1;"
        kernel = PortableKernel("wrong", params=[Buffer("y", "f4", "rw")], body=body, group=_GROUP)
        with pytest.raises(CompileError) as caught:
            device.compile(kernel.source(device))
        assert caught.value.line == 5

    def test_kernels_without_vectors_have_no_vector_types(self, device: Device) -> None:
        assert "kk_float4" not in SAXPY.source(device).text
