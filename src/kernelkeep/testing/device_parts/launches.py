"""Launching: one to three dimensions, odd sizes, scalars, shared arrays and barriers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ...devices.base import Device, Kernel
from ...errors import ArgumentError, CompileError, Unsupported
from ...programs.portable import Buffer, PortableKernel, Scalar
from .common import GROUP, DevicePart, groups

__all__ = ["LaunchTests"]

_NEEDS = {"f8": "float64", "i8": "int64", "u8": "int64", "i1": "int8", "u1": "int8", "i2": "int8", "u2": "int8"}
_BOTH = [Buffer("x", "f4", "r"), Buffer("y", "f4", "w")]


def _add(dtype: str) -> PortableKernel:
    return PortableKernel(
        f"add_{dtype}",
        params=[Buffer("x", dtype, "r"), Buffer("y", dtype, "rw"), Scalar("k", dtype), Scalar("n", "i4")],
        body="int i = kk_global_id(0);\nif (i < n) y[i] = x[i] + k;",
        group=GROUP,
    )


class LaunchTests(DevicePart):
    """What a kernel computes is what NumPy computes."""

    @pytest.mark.parametrize(
        ("group", "read"),
        [
            (32, "c[(3 * l) & 31] + c[l]"),
            (32, "x[(6 * l) & 63] - c[l]"),
            (64, "c[(3 * l) & 63]"),
            (64, "x[(6 * l) & 127] - c[l]"),
        ],
    )
    def test_reads_at_a_stride_that_wraps_are_right(self, device: Device, group: int, read: str) -> None:
        """LLVM's vectoriser, which drivers for CPUs use, gets these wrong up to version 20 at least."""
        kernel = PortableKernel(
            "wrapped",
            params=_BOTH,
            body=f"""kk_shared(float, c, 128);
            int l = kk_local_id(0);
            for (int t = l; t < 128; t += {group}) c[t] = x[t];
            kk_barrier();
            y[kk_global_id(0)] = {read};""",
            group=group,
        )
        host = np.arange(128, dtype="f4") * 3 + 1
        _, y = self.run(device, kernel, 2, host, np.zeros(2 * group, "f4"))
        expected = eval(read, {"c": host, "x": host, "l": np.arange(2 * group) % group})
        assert y.tolist() == expected.tolist()

    @pytest.mark.parametrize("items", [1, 7, 63, 64, 65, 255, 257, 1001, 100_003])
    def test_saxpy_of_odd_sizes_is_right(self, device: Device, saxpy: Kernel, items: int) -> None:
        self.check_saxpy(device, saxpy, items)

    @pytest.mark.parametrize(("shape", "group"), [((7, 5), (4, 2)), ((1, 257), (16, 4)), ((31, 33), (8, 8))])
    def test_ids_of_two_dimensions(self, device: Device, shape: tuple[int, int], group: tuple[int, int]) -> None:
        height, width = shape
        kernel = PortableKernel(
            "plane",
            params=[Buffer("y", "i4", "w"), Scalar("width", "i4"), Scalar("height", "i4")],
            body="int c = kk_global_id(0), r = kk_global_id(1);\n"
            "if (c < width && r < height) y[r * width + c] = r * 1000 + c;",
            group=group,
        )
        grid = (groups(width, group[0]), groups(height, group[1]))
        (y,) = self.run(device, kernel, grid, np.full(shape, -1, "i4"), width, height)
        assert (y == np.arange(height)[:, None] * 1000 + np.arange(width)).all()

    @pytest.mark.parametrize("group", [(4, 2, 3), (1, 1, 1), (2, 8, 4)])
    def test_ids_of_three_dimensions(self, device: Device, group: tuple[int, int, int]) -> None:
        kernel = PortableKernel(
            "space",
            params=[Buffer("y", "i4", "w"), Scalar("nx", "i4"), Scalar("ny", "i4"), Scalar("nz", "i4")],
            body="int i = kk_global_id(0), j = kk_global_id(1), k = kk_global_id(2);\n"
            "if (i < nx && j < ny && k < nz) y[(k * ny + j) * nx + i] = (k * 100 + j) * 100 + i;",
            group=group,
        )
        grid = tuple(groups(n, g) for n, g in zip((5, 7, 3), group, strict=True))
        (y,) = self.run(device, kernel, grid, np.full((3, 7, 5), -1, "i4"), 5, 7, 3)
        k, j, i = np.indices((3, 7, 5))
        assert (y == (k * 100 + j) * 100 + i).all()

    def test_every_id_function_is_right(self, device: Device) -> None:
        names = ("global_id", "local_id", "group_id", "group_size", "group_count", "global_size")
        lines = [f"y[(at * 6 + {n}) * 3 + {d}] = kk_{name}({d});" for n, name in enumerate(names) for d in range(3)]
        at = "int at = (kk_global_id(2) * kk_global_size(1) + kk_global_id(1)) * kk_global_size(0) + kk_global_id(0);\n"
        kernel = PortableKernel("ids", params=[Buffer("y", "i4", "w")], body=at + "\n".join(lines), group=(2, 3, 4))
        grid, group = np.array([5, 3, 2]), np.array([2, 3, 4])
        size = grid * group
        (y,) = self.run(device, kernel, (5, 3, 2), np.full((*size[::-1], 6, 3), -1, "i4"))
        ids = np.moveaxis(np.indices(size[::-1])[::-1], 0, -1)
        np.testing.assert_array_equal(y[..., 0, :], ids)
        np.testing.assert_array_equal(y[..., 1, :], ids % group)
        np.testing.assert_array_equal(y[..., 2, :], ids // group)
        for n, expected in ((3, group), (4, grid), (5, size)):
            assert (y[..., n, :] == expected).all(), names[n]

    def test_conversions(self, device: Device) -> None:
        kernel = PortableKernel(
            "convert",
            params=[Buffer("i", "i4", "w"), Buffer("u", "u4", "w"), Buffer("f", "f4", "w"), Scalar("v", "f4")],
            body="i[0] = kk_int(v); u[0] = kk_uint(v); f[0] = kk_float(kk_int(v)) / 2.0f;",
            group=1,
        )
        i, u, f = self.run(device, kernel, 1, np.zeros(1, "i4"), np.zeros(1, "u4"), np.zeros(1, "f4"), 7.75)
        assert (i[0], u[0], f[0]) == (7, 7, 3.5)

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("fabs(-v)", np.abs), ("sqrt(v)", np.sqrt), ("exp(v)", np.exp), ("log(v)", np.log), ("sin(v)", np.sin),
            ("fmin(v, 1.5f)", lambda v: np.minimum(v, 1.5)), ("fmax(v, 1.5f)", lambda v: np.maximum(v, 1.5)),
            ("pow(v, 3.0f)", lambda v: v**3), ("fma(v, 2.0f, 1.0f)", lambda v: v * 2 + 1), ("floor(v)", np.floor),
            ("rsqrt(v)", lambda v: 1 / np.sqrt(v)), ("sqrtf(fabsf(v)) + fmaxf(v, 0.0f)", lambda v: np.sqrt(v) + v),
        ],
    )  # fmt: skip
    def test_math_by_its_portable_name(self, device: Device, expression: str, expected: Any) -> None:
        body = f"int i = kk_global_id(0);\nfloat v = x[i];\ny[i] = {expression};"
        x = np.linspace(0.25, 3, 8, dtype="f4")
        _, y = self.run(device, PortableKernel("math", params=_BOTH, body=body, group=8), 1, x, np.zeros(8, "f4"))
        np.testing.assert_allclose(y, expected(x), rtol=1e-4)

    @pytest.mark.parametrize("dtype", ["i4", "u4", "f2", "f4", "f8", "i8", "u8", "i1", "u1", "i2", "u2"])
    def test_kernel_over_dtype(self, device: Device, dtype: str) -> None:
        kernel = _add(dtype)
        needs = _NEEDS.get(dtype)
        if needs is not None and not getattr(device.capabilities, needs):
            with pytest.raises(Unsupported, match=dtype) as caught:
                kernel.source(device)
            assert caught.value.capability == needs
            return
        kind = np.dtype(dtype)
        if kind.kind == "f":
            x, k = np.linspace(-5, 5, 255, dtype=dtype), kind.type(1.1)
        else:
            limits = np.iinfo(kind)
            x = np.linspace(limits.min // 2, limits.max // 2 - 1, 255).astype(dtype)
            k = kind.type(limits.max // 4)
        _, y = self.run(device, kernel, groups(255), x, np.zeros_like(x), k, 255)
        np.testing.assert_array_equal(y, x + k)

    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            ("i4", np.int32(-7)), ("i4", -7), ("i4", 2**31 - 1), ("i4", -(2**31)), ("i4", True), ("i4", np.array(9, "i4")),
            ("u4", np.uint32(7)), ("u4", 2**32 - 1), ("f4", np.float32(0.1)), ("f4", 0.1), ("f4", 3), ("f4", 1e-30),
            ("f4", float("inf")), ("f4", np.array(2.5, "f4")), ("f4", np.float64(0.1)), ("f4", np.int64(3)),
            ("i4", np.int64(-7)), ("i4", np.uint32(7)), ("u4", np.int64(2**32 - 1)), ("i4", np.array(9)),
        ],
    )  # fmt: skip
    def test_scalars_of_every_dtype_arrive(self, device: Device, dtype: str, value: Any) -> None:
        _, y = self.run(device, _add(dtype), 1, np.zeros(3, dtype), np.zeros(3, dtype), value, 3)
        assert (y == np.array(value).astype(dtype)).all()

    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            ("i4", 2**31), ("i4", -(2**31) - 1), ("u4", -1), ("u4", 2**32), ("i4", 1.0), ("i4", np.float32(1)),
            ("i4", np.int64(2**31)), ("i4", np.uint32(2**31)), ("u4", np.int64(-1)), ("i4", np.float64(1)),
            ("f4", np.float64(1e39)), ("f4", 1e39), ("f4", 10**39),
            ("f4", 10**400), ("f4", "1"), ("f4", None), ("f4", 1j), ("i4", np.arange(3, dtype="i4")),
        ],
        ids=lambda value: value if isinstance(value, str) else f"{type(value).__name__}-{value!s:.12}",
    )  # fmt: skip
    def test_scalars_that_do_not_fit_are_rejected(self, device: Device, dtype: str, value: Any) -> None:
        kernel = self.build(device, _add(dtype))
        x, y = device.array(np.zeros(3, dtype)), device.array(np.full(3, 42).astype(dtype))
        with pytest.raises(ArgumentError, match=r"argument 2 \(k\) of add_"):
            kernel.launch(1, (x, y, value, 3))
        assert (y.numpy() == 42).all(), "a refused launch must not run"

    def test_scalars_of_many_sizes_arrive_together(self, device: Device) -> None:
        # Alignment inside the block of scalars is where a wrong offset would show.
        kinds = ["i4", "f4", "u4", "i4", "f4"]
        if device.capabilities.float64:
            kinds[2:2] = ["f8"]
        params = [Scalar(f"s{n}", kind) for n, kind in enumerate(kinds)]
        body = "".join(f"y[{n}] = kk_float(s{n});\n" for n in range(len(kinds)))
        kernel = PortableKernel("sizes", params=[*params, Buffer("y", "f4", "w")], body=body, group=1)
        values = [np.dtype(kind).type(10 + n) for n, kind in enumerate(kinds)]
        (y,) = self.run(device, kernel, 1, *values, np.zeros(len(kinds), "f4"))
        assert (y == np.arange(len(kinds)) + 10).all()

    def test_a_kernel_without_arguments_runs(self, device: Device) -> None:
        try:
            kernel = self.build(device, PortableKernel("nothing", params=[], body="kk_barrier();", group=1))
        except CompileError as error:
            if "ptxas" not in error.log:
                raise
            pytest.skip(
                "NVIDIA's OpenCL compiler makes PTX of a kernel without arguments that its own assembler refuses"
            )
        kernel.launch(1)
        device.synchronize()
        with pytest.raises(ArgumentError, match="takes 0 arguments"):
            kernel.launch(1, (1,))

    def test_launches_keep_their_order(self, device: Device, saxpy: Kernel) -> None:
        x, y = device.array(np.ones(64, "f4")), device.array(np.zeros(64, "f4"))
        for _ in range(200):
            saxpy.launch(1, (x, y, 1.0, 64))
            saxpy.launch(1, (y, y, 0.0, 64))
        assert (y.numpy() == 200).all()

    def test_group_may_be_repeated_at_the_launch(self, device: Device, saxpy: Kernel) -> None:
        self.check_saxpy(device, saxpy, 100, GROUP)
        x, y = device.array(np.ones(4, "f4")), device.array(np.zeros(4, "f4"))
        saxpy.launch((1, 1, 1), (x, y, 2.0, 4), (GROUP, 1, 1))
        saxpy.launch([np.int64(1)], (x, y, 2.0, 4), [GROUP])  # type: ignore[arg-type]
        assert (y.numpy() == 4).all()

    def test_barriers_order_a_shared_array(self, device: Device) -> None:
        kernel = PortableKernel(
            "total",
            params=[Buffer("x", "f4", "r"), Buffer("sums", "f4", "w"), Scalar("n", "i4")],
            body="""kk_shared(float, part, 64);
                    int l = kk_local_id(0), i = kk_global_id(0);
                    part[l] = i < n ? x[i] : 0.0f;
                    kk_barrier();
                    for (int step = 32; step > 0; step = step / 2) {
                        if (l < step) part[l] = part[l] + part[l + step];
                        kk_barrier();
                    }
                    if (l == 0) sums[kk_group_id(0)] = part[0];""",
            group=64,
        )
        x = np.arange(1001, dtype="f4")
        _, sums = self.run(device, kernel, groups(1001), x, np.zeros(groups(1001), "f4"), 1001)
        np.testing.assert_array_equal(sums, np.pad(x, (0, 23)).reshape(-1, 64).sum(axis=1))

    def test_a_two_dimensional_shared_array_works(self, device: Device) -> None:
        kernel = PortableKernel(
            "transpose",
            params=[Buffer("x", "i4", "r"), Buffer("y", "i4", "w"), Scalar("w", "i4"), Scalar("h", "i4")],
            body="""kk_shared(int, tile, TILE, TILE + 1);
                    int lx = kk_local_id(0), ly = kk_local_id(1);
                    int c = kk_global_id(0), r = kk_global_id(1);
                    if (c < w && r < h) tile[ly][lx] = x[r * w + c];
                    kk_barrier();
                    int tc = kk_group_id(1) * TILE + lx, tr = kk_group_id(0) * TILE + ly;
                    if (tc < h && tr < w) y[tr * h + tc] = tile[lx][ly];""",
            group=(8, 8),
            defines={"TILE": 8},
        )
        x = np.arange(19 * 37, dtype="i4").reshape(19, 37)
        _, y = self.run(device, kernel, (groups(37, 8), groups(19, 8)), x, np.zeros((37, 19), "i4"), 37, 19)
        np.testing.assert_array_equal(y, x.T)

    def test_a_buffer_is_read_in_the_condition_of_a_loop_and_after_it(self, device: Device) -> None:
        kernel = PortableKernel(
            "twice",
            params=[Buffer("x", "i4", "r"), Buffer("y", "i4", "w")],
            body="int k = 0;\nfor (int i = 0; i < x[0]; i++) k += 2;\ny[0] = k; y[1] = x[0]; y[2] = x[1];",
            group=1,
        )
        _, y = self.run(device, kernel, 1, np.array([7, 9], "i4"), np.zeros(3, "i4"))
        assert y.tolist() == [14, 7, 9]

    def test_cooperative_launches_synchronise_the_grid_or_are_unsupported(self, device: Device, saxpy: Kernel) -> None:
        x, y = device.array(np.ones(64, "f4")), device.array(np.zeros(64, "f4"))
        if device.capabilities.cooperative:
            saxpy.launch(1, (x, y, 2.0, 64), cooperative=True)
            assert (y.numpy() == 2).all()
        else:
            with pytest.raises(Unsupported) as caught:
                saxpy.launch(1, (x, y, 2.0, 64), cooperative=True)
            assert caught.value.capability == "cooperative"
            assert (y.numpy() == 0).all()
