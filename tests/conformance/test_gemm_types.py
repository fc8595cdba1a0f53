"""gemm of half, bfloat16 and, where there are units for it, TF32, against NumPy in double precision."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.kernels import gemm
from kernelkeep.kernels.gemm.elements import Element, element_of, narrowed, widened
from kernelkeep.kernels.gemm.operation import GEMM
from kernelkeep.testing import open_or_skip
from kernelkeep.variants.trial import TrialLaunch, try_variant

Host = np.ndarray[Any, Any]
# The last one is for tensor cores, where there are some: no tile divides it, but rows begin at multiples of 16 bytes.
SHAPES = [(1, 1, 1), (3, 5, 17), (33, 45, 67), (65, 128, 24), (264, 520, 136)]
TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2}


def numbers(seed: int, *shape: int) -> Host:
    return np.random.default_rng(seed).uniform(-0.25, 1.0, shape).astype("f4")


def stored(values: Host, kind: str) -> Host:
    found: Host = values.astype("f2") if kind == "float16" else narrowed(values)
    return found


def read(values: Host, kind: str) -> Host:
    found: Host = (values if kind == "float16" else widened(values)).astype("f8")
    return found


def check(found: Host, exact: Host, tolerance: float) -> None:
    assert found.shape == exact.shape
    error = np.abs(found - exact).max() / np.abs(exact).max()
    assert error <= tolerance, f"off by {error}"


class GemmTypeTests:
    spec: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls) -> Iterator[kk.Device]:
        with open_or_skip(cls.spec) as opened:
            yield opened

    @pytest.fixture(scope="class")
    @classmethod
    def cache(cls, device: kk.Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kk.ProgramCache]:
        with kk.ProgramCache(device, tmp_path_factory.mktemp("cache")) as made:
            yield made

    @pytest.mark.parametrize("kind", ["float16", "bfloat16"])
    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_products_of_16_bit_floats(self, cache: kk.ProgramCache, kind: str, shape: tuple[int, int, int]) -> None:
        m, n, k = shape
        a, b, c = (stored(numbers(i, *s), kind) for i, s in enumerate(((m, k), (k, n), (m, n))))
        found = gemm(cache, a, b, dtype=kind)
        assert found.dtype == a.dtype
        product = read(a, kind) @ read(b, kind)
        check(read(found, kind), product, TOLERANCE[kind])
        found = gemm(cache, a, b, c, alpha=-0.75, beta=0.5, dtype=kind)
        check(read(found, kind), -0.75 * product + 0.5 * read(c, kind), TOLERANCE[kind])

    @pytest.mark.parametrize("kind", ["float16", "bfloat16"])
    def test_infinities_and_nan(self, cache: kk.ProgramCache, kind: str) -> None:
        a, b = np.ones((264, 136), "f4"), np.ones((136, 520), "f4")
        a[1, 2], a[3, 4], b[5, 6] = np.inf, np.nan, -np.inf
        with np.errstate(invalid="ignore"):
            found, exact = read(gemm(cache, stored(a, kind), stored(b, kind), dtype=kind), kind), a @ b
        np.testing.assert_array_equal(found, exact)

    def test_an_array_for_the_result_has_the_same_type(self, device: kk.Device, cache: kk.ProgramCache) -> None:
        a, b = device.array(numbers(0, 8, 16).astype("f2")), device.array(numbers(1, 16, 24).astype("f2"))
        out = device.empty((8, 24), "f2")
        assert gemm(cache, a, b, out=out) is out
        check(out.numpy(), a.numpy().astype("f8") @ b.numpy().astype("f8"), 2e-3)
        with pytest.raises(kk.ArgumentError, match="out is float32"):
            gemm(cache, a, b, out=device.empty((8, 24)))

    def test_an_empty_sum(self, device: kk.Device, cache: kk.ProgramCache) -> None:
        a, b, c = np.empty((2, 0), "u2"), np.empty((0, 3), "u2"), narrowed(np.full((2, 3), 3.0))
        assert (widened(gemm(cache, a, b, c, beta=0.5, dtype="bfloat16")) == 1.5).all()

    def test_mistakes_are_named(self, cache: kk.ProgramCache) -> None:
        half, single, words = (np.ones((8, 8), dtype) for dtype in ("f2", "f4", "u2"))
        for message, arguments, options in (
            ("a is float16 and b is float32", (half, single), {}),
            ("a is uint16, and this kernel computes in float32", (words, words), {}),
            ("dtype is bfloat16, and a is float32", (single, single), {"dtype": "bfloat16"}),
            ("dtype must be float32, float16 or bfloat16, got 'int8'", (half, half), {"dtype": "int8"}),
            ("tf32 is for float32, and a is float16", (half, half), {"tf32": True}),
        ):
            with pytest.raises(kk.ArgumentError, match=message):
                gemm(cache, *arguments, **options)

    def test_tf32_is_allowed_everywhere(self, cache: kk.ProgramCache) -> None:
        a, b = numbers(0, 264, 136), numbers(1, 136, 520)
        check(gemm(cache, a, b, tf32=True), a.astype("f8") @ b.astype("f8"), 2e-3)


@pytest.mark.opencl
class TestOpenCL(GemmTypeTests):
    spec = "opencl"


@pytest.mark.opengl
class TestOpenGL(GemmTypeTests):
    spec = "opengl"


@pytest.mark.cuda
class TestCUDA(GemmTypeTests):
    spec = "cuda"

    @pytest.fixture(scope="class")
    @classmethod
    def tensor_cores(cls, device: kk.Device) -> None:
        if not device.capabilities.tile_products:
            pytest.skip(f"{device.info.name} multiplies no tiles")

    @pytest.mark.parametrize("kind", ["float16", "bfloat16", "tf32", "float32"])
    def test_variants_for_tensor_cores(
        self, device: kk.Device, cache: kk.ProgramCache, tensor_cores: None, kind: str
    ) -> None:
        one = np.empty(1, {"float16": "f2", "bfloat16": "u2"}.get(kind, "f4"))
        element: Element = element_of(one, one, None if kind == "tf32" else kind, kind == "tf32")
        problem = {"m": 520, "n": 1048, "k": 520}
        tuned = (element.templates or GEMM).tuned_for(device, problem)
        assert "GROUPS" in tuned.space.default(problem)
        self.try_some(device, cache, tuned, problem)

    @pytest.mark.parametrize("kind", ["float16", "bfloat16"])
    def test_variants_for_warps(self, device: kk.Device, cache: kk.ProgramCache, kind: str) -> None:
        if not device.capabilities.warp_products:
            pytest.skip(f"{device.info.name}: its warps multiply no tiles")
        one = np.empty(1, {"float16": "f2", "bfloat16": "u2"}[kind])
        templates = element_of(one, one, kind, False).templates
        assert templates is not None
        tuned = templates.tuned("warps", device.capabilities.shared_bytes)
        self.try_some(device, cache, tuned, {"m": 67, "n": 264, "k": 72})

    @pytest.mark.parametrize("problem", [(131, 99, 517), (70, 66, 1030), (48, 132, 2052)], ids=str)
    def test_variants_that_share_sums_in_clusters(
        self, device: kk.Device, cache: kk.ProgramCache, problem: tuple[int, int, int]
    ) -> None:
        if not device.capabilities.clusters:
            pytest.skip(f"{device.info.name} has no clusters")
        tuned = GEMM.tuned("warps", device.capabilities.shared_bytes)
        self.try_some(device, cache, tuned, dict(zip("mnk", problem, strict=True)))

    @staticmethod
    def try_some(device: kk.Device, cache: kk.ProgramCache, tuned: kk.Tuned, problem: dict[str, int]) -> None:
        definition = tuned.definition
        case = definition.case(device, problem)
        every = list(tuned.space.around(tuned.space.default(problem), problem))
        sliced = [variant for variant in every if variant.get("SLICES") not in (None, 1)]
        some = random.Random(0)
        for variant in some.sample(every, 2) + some.sample(sliced, min(2, len(sliced))):
            launch = definition.launch(device, case.values, variant)
            params = tuned.template.params(device.language)
            trial = TrialLaunch(launch.grid, launch.group, case, launch.shared_bytes)
            outcome = try_variant(cache, launch.source, launch.kernel, params, [trial], tuned.tolerance)
            assert not outcome.failure, f"{variant}: {outcome.failure}, {outcome.detail}"

    @pytest.mark.parametrize(("m", "n", "k"), [(520, 772, 1024), (190, 381, 3947)])
    def test_float32_keeps_its_precision_and_its_infinities(
        self, cache: kk.ProgramCache, m: int, n: int, k: int
    ) -> None:
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal(shape, dtype="f4") for shape in ((m, k), (k, n)))
        check(gemm(cache, a, b), a.astype("f8") @ b.astype("f8"), 2e-6)
        a[1, 2], a[3, 4], b[5, 6] = np.inf, np.nan, -np.inf
        with np.errstate(all="ignore"):
            found, exact = gemm(cache, a, b), a @ b
        np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
        np.testing.assert_array_equal(np.isposinf(found), np.isposinf(exact))

    @pytest.mark.parametrize("where", ["cpu", "cuda"])
    def test_bfloat16_of_pytorch(self, cache: kk.ProgramCache, where: str) -> None:
        torch = pytest.importorskip("torch")
        a, b = (torch.from_numpy(numbers(i, 264, 264)).to(torch.bfloat16).to(where) for i in range(2))
        found = gemm(cache, a, b)
        assert found.dtype == torch.bfloat16 and found.device.type == where
        exact = a.double().cpu().numpy() @ b.double().cpu().numpy()
        check(found.double().cpu().numpy(), exact, 1e-2)


def test_words_are_rounded_to_the_nearest_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -2.5, 3.4e38, np.inf, np.nan], "f4")
    exact = np.array([1.0, 1.0, 1.015625, -2.5, np.inf, np.inf, np.nan], "f4")
    np.testing.assert_array_equal(widened(narrowed(values)), exact)
