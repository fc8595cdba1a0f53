"""gemm and conv2d against NumPy in double precision, on every backend, for every shape, kind of array and variant."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import kernelkeep as kk
from kernelkeep.kernels import conv2d, gemm
from kernelkeep.kernels.conv2d.operation import CONV2D
from kernelkeep.kernels.gemm.elements import float32_kinds
from kernelkeep.kernels.gemm.operation import GEMM
from kernelkeep.kernels.templates import template_kind
from kernelkeep.testing import open_or_skip
from kernelkeep.variants.trial import TrialLaunch, try_variant

Host = np.ndarray[Any, Any]

# One test method serves several classes, and each example may have to compile.
FUZZ = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow]
)
SIZES = st.one_of(st.sampled_from([1, 2, 3, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129]), st.integers(1, 150))
# (r, s), (stride_y, stride_x): they are compiled in, so each is a program of its own.
FILTERS = [
    ((1, 1), (1, 1)),
    ((3, 3), (1, 1)),
    ((5, 5), (1, 1)),
    ((7, 7), (2, 2)),
    ((3, 3), (2, 2)),
    ((3, 5), (1, 1)),
    ((1, 3), (3, 1)),
    ((7, 1), (1, 2)),
    ((5, 3), (2, 3)),
]


def numbers(seed: int, *shape: int) -> Host:
    """Of both signs, but mostly of one, so that sums do not end near zero as a rule."""
    return np.random.default_rng(seed).uniform(-0.25, 1.0, shape).astype("f4")


def check(found: Any, exact: Host, size: float) -> None:
    """Within 1e-5 of the largest value. Where all of them happen to be nearly zero, `size`, what the sums would be
    without signs, is the measure: no order of adding up does better than float32."""
    found = found.numpy() if isinstance(found, kk.Array) else np.asarray(found)
    assert found.dtype == np.float32 and found.shape == exact.shape
    error = np.abs(found - exact).max(initial=0.0)
    assert error <= max(1e-5 * np.abs(exact).max(initial=0.0), 1e-6 * size), f"off by {error}"


def check_gemm(found: Any, a: Host, b: Host, c: Host | None = None, alpha: float = 1.0, beta: float = 0.0) -> None:
    wide = a.astype("f8"), b.astype("f8")
    exact = alpha * (wide[0] @ wide[1])
    if beta and c is not None:
        exact = exact + beta * c.astype("f8")
    size = abs(alpha) * np.abs(wide[0]) @ np.abs(wide[1])
    check(found, exact, float(size.max(initial=0.0)) + abs(beta))


def check_conv2d(found: Any, x: Host, w: Host, padding: tuple[int, int] = (0, 0), stride: Any = (1, 1)) -> None:
    """Written down as it is defined, unlike the reference that ships: a sum over taps and channels."""
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, :: stride[0], :: stride[1]]
    exact = np.einsum("ncyxrs,kcrs->nkyx", windows, w.astype("f8"), optimize=True)
    check(found, exact, float(np.abs(w).sum((1, 2, 3)).max(initial=0.0)))


class Tensor:
    """An array of a library that kernelkeep does not know, in host memory."""

    __module__ = "otherlib.tensors"

    def __init__(self, host: Host) -> None:
        self.host = host

    def __dlpack__(self, **options: Any) -> Any:
        return self.host.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.host.__dlpack_device__()


@pytest.fixture
def otherlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library, with the one function that all of them have."""
    library = ModuleType("otherlib")
    library.from_dlpack = lambda data: Tensor(np.from_dlpack(data))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "otherlib", library)


class KernelTests:
    """What both kernels promise, on one backend."""

    backend: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def device(cls) -> Iterator[kk.Device]:
        with open_or_skip(cls.backend) as opened:
            yield opened

    @pytest.fixture(scope="class")
    @classmethod
    def cache(cls, device: kk.Device, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kk.ProgramCache]:
        """One for the class: compiling takes longest."""
        with kk.ProgramCache(device, tmp_path_factory.mktemp("kernels")) as opened:
            yield opened

    # --- gemm

    @FUZZ
    @given(SIZES, SIZES, SIZES, st.sampled_from([1.0, -0.5, 0.0]), st.sampled_from([0.0, 1.0, -1.5]))
    @example(1, 1, 1, 1.0, 0.0)
    @example(128, 128, 128, 1.0, 1.0)
    @example(1, 150, 1, 1.0, 1.0)
    def test_gemm(self, cache: kk.ProgramCache, m: int, n: int, k: int, alpha: float, beta: float) -> None:
        a, b, c = numbers(1, m, k), numbers(2, k, n), numbers(3, m, n)
        if not beta:
            c[:] = np.nan  # what is multiplied with zero is not looked at
        target = cache.device.array(c)
        found = gemm(cache, a, b, target, alpha=alpha, beta=beta)
        check_gemm(found, a, b, c, alpha, beta)
        np.testing.assert_array_equal(target.numpy(), c)  # c is an input; the result is another array
        assert gemm(cache, cache.device.array(a), b, alpha=alpha, beta=beta, out=target) is target
        check_gemm(target, a, b, c, alpha, beta)

    def test_a_larger_gemm(self, cache: kk.ProgramCache) -> None:
        a, b = numbers(1, 257, 700), numbers(2, 700, 301)
        check_gemm(gemm(cache, a, b), a, b)

    def test_gemm_over_a_long_sum(self, cache: kk.ProgramCache) -> None:
        """llvmpipe would leave some of it out, silently."""
        a, b = numbers(1, 2, 140_000), numbers(2, 140_000, 3)
        if cache.device.info.name.startswith("llvmpipe"):
            with pytest.raises(kk.Unsupported, match="too long for llvmpipe"):
                gemm(cache, a, b)
            a, b = a[:, :100_000], b[:100_000]
        check_gemm(gemm(cache, a, b), a, b)

    def test_gemm_of_any_kind_of_array(self, cache: kk.ProgramCache, otherlib: None) -> None:
        device, a, b, c = cache.device, numbers(1, 20, 30), numbers(2, 30, 40), numbers(3, 20, 40)
        for right in (b, device.array(b), Tensor(b)):
            found = gemm(cache, a, right)
            assert type(found) is np.ndarray
            check_gemm(found, a, b)
        found = gemm(cache, device.array(a), b, c, beta=1.0)
        assert type(found) is kk.Array and found.device is device
        check_gemm(found, a, b, c, beta=1.0)
        found = gemm(cache, Tensor(a), b, Tensor(c), beta=2.0)
        assert type(found) is Tensor
        check_gemm(found.host, a, b, c, beta=2.0)

    def test_gemm_of_parts_of_arrays(self, cache: kk.ProgramCache) -> None:
        whole = numbers(1, 60, 80)
        for a, b in (
            (whole.T, whole),
            (whole[::2, 1::3], whole[:27, ::-1]),
            (whole[5:6], whole[:, 3:4].repeat(2, 1)[20:]),
        ):
            b = b[: a.shape[1]] if b.shape[0] >= a.shape[1] else np.resize(b, (a.shape[1], b.shape[1]))
            check_gemm(gemm(cache, a, b), a, b)

    def test_gemm_into_an_array(self, cache: kk.ProgramCache) -> None:
        device, a, b, c = cache.device, numbers(1, 20, 30), numbers(2, 30, 40), numbers(3, 20, 40)
        out = device.array(c)
        assert gemm(cache, a, b, out, alpha=2.0, beta=0.5, out=out) is out
        check_gemm(out, a, b, c, 2.0, 0.5)
        out.copy_from(c)
        gemm(cache, a, b, beta=1.0, out=out)  # without c, what is in out counts
        check_gemm(out, a, b, c, 1.0, 1.0)
        gemm(cache, a, b, c, beta=1.0, out=out)
        check_gemm(out, a, b, c, 1.0, 1.0)

    def test_gemm_of_empty_matrices(self, cache: kk.ProgramCache) -> None:
        for m, n, k in ((0, 5, 3), (5, 0, 3), (0, 0, 0), (0, 5, 0)):
            found = gemm(cache, numbers(1, m, k), numbers(2, k, n))
            assert found.shape == (m, n) and found.dtype == np.float32
        c = numbers(3, 4, 5)
        np.testing.assert_array_equal(gemm(cache, numbers(1, 4, 0), numbers(2, 0, 5)), np.zeros((4, 5)))
        np.testing.assert_array_equal(gemm(cache, numbers(1, 4, 0), numbers(2, 0, 5), c, beta=2.0), 2 * c)
        np.testing.assert_array_equal(gemm(cache, numbers(1, 4, 0), numbers(2, 0, 5), np.full_like(c, np.nan)), 0 * c)

    def test_gemm_rejects_wrong_arguments(self, cache: kk.ProgramCache) -> None:
        device, a, b, c = cache.device, numbers(1, 4, 6), numbers(2, 6, 5), numbers(3, 4, 5)
        square = device.array(numbers(1, 4, 4))
        wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
            ((a, a), {}, "a is 4 × 6 and b is 4 × 6: the inner sizes differ"),
            ((a.astype("f8"), b), {}, "a is float64, and this kernel computes in float32"),
            ((a, b.astype("i4")), {}, "b is int32"),
            ((a[0], b), {}, r"a must have 2 dimensions, got the shape \(6,\)"),
            ((a, b[None]), {}, "b must have 2 dimensions"),
            ((a, b), {"beta": 1.0}, "with beta other than 0, gemm needs c"),
            ((a, b, c[:3]), {"beta": 1.0}, r"c has the shape \(3, 5\), and the product is 4 × 5"),
            ((a, b, c.astype("f8")), {"beta": 1.0}, "c is float64"),
            ((a, b), {"out": c}, "out must be a device array, got a ndarray"),
            ((a, b), {"out": device.empty((5, 4), "f4")}, r"out has the shape \(5, 4\), and the result has \(4, 5\)"),
            ((a, b), {"out": device.empty((4, 5), "f8")}, "out is float64"),
            ((None, b), {}, "cannot make an array|made of numbers"),
            ((a, b, c[:3]), {}, r"c has the shape \(3, 5\), and the product is 4 × 5"),
            ((a, b), {"alpha": "x"}, "alpha and beta must be numbers"),
            ((a, b), {"alpha": None}, "alpha and beta must be numbers"),
            ((a, b), {"beta": 10**400}, "alpha and beta must be numbers"),
            ((square, b[:4, :4]), {"out": square}, "out is one of the operands"),
        ]
        for positional, named, said in wrong:
            with pytest.raises(kk.ArgumentError, match=said) as caught:
                gemm(cache, *positional, **named)
            assert "\n" not in str(caught.value)
        with kk.open_device(device.spec) as other, pytest.raises(kk.ArgumentError, match="and the cache is for"):
            gemm(cache, other.array(a), b)
        nothing: Any = None
        with pytest.raises(kk.ArgumentError, match="got a NoneType"):
            gemm(nothing, a, b)

    # --- conv2d

    @FUZZ
    @given(st.data())
    def test_conv2d(self, cache: kk.ProgramCache, data: st.DataObject) -> None:
        (r, s), stride = data.draw(st.sampled_from(FILTERS), "filter")
        padding = data.draw(st.tuples(st.integers(0, r), st.integers(0, s)), "padding")  # up to one too many
        n, c, k = (data.draw(st.integers(1, most), name) for name, most in (("n", 3), ("c", 20), ("k", 40)))
        height = data.draw(st.integers(max(1, r - 2 * padding[0]), 40), "height")
        width = data.draw(st.integers(max(1, s - 2 * padding[1]), 40), "width")
        x, w = numbers(1, n, c, height, width), numbers(2, k, c, r, s)
        check_conv2d(conv2d(cache, x, w, padding, stride), x, w, padding, stride)

    def test_padding_and_stride_as_numbers_pairs_and_names(self, cache: kk.ProgramCache) -> None:
        x, three, wide = numbers(1, 2, 3, 17, 19), numbers(2, 4, 3, 3, 3), numbers(2, 4, 3, 3, 5)
        check_conv2d(conv2d(cache, x, three), x, three)
        check_conv2d(conv2d(cache, x, three, "valid"), x, three)
        check_conv2d(conv2d(cache, x, three, padding=2, stride=2), x, three, (2, 2), (2, 2))
        odd: Any = {"padding": [0, 1], "stride": np.int64(1)}
        check_conv2d(conv2d(cache, x, three, **odd), x, three, (0, 1))
        for w in (three, wide):
            same = conv2d(cache, x, w, padding="same")
            assert same.shape == (2, 4, 17, 19)
            check_conv2d(same, x, w, (w.shape[2] // 2, w.shape[3] // 2))

    def test_conv2d_of_any_kind_of_array(self, cache: kk.ProgramCache, otherlib: None) -> None:
        device, x, w = cache.device, numbers(1, 2, 3, 17, 19), numbers(2, 4, 3, 3, 3)
        found = conv2d(cache, x, device.array(w))
        assert type(found) is np.ndarray
        check_conv2d(found, x, w)
        found = conv2d(cache, device.array(x), w)
        assert type(found) is kk.Array
        check_conv2d(found, x, w)
        found = conv2d(cache, Tensor(x), Tensor(w))
        assert type(found) is Tensor
        check_conv2d(found.host, x, w)
        out = device.array(np.full((2, 4, 15, 17), np.nan, "f4"))
        assert conv2d(cache, x, w, out=out) is out
        check_conv2d(out, x, w)
        turned, cut = x.transpose(0, 1, 3, 2), w[:, :, ::-1]
        check_conv2d(conv2d(cache, turned, cut), np.ascontiguousarray(turned), cut)

    def test_conv2d_of_empty_batches(self, cache: kk.ProgramCache) -> None:
        w = numbers(2, 4, 3, 3, 3)
        assert conv2d(cache, numbers(1, 0, 3, 8, 8), w).shape == (0, 4, 6, 6)
        assert conv2d(cache, numbers(1, 2, 3, 8, 8), w[:0]).shape == (2, 0, 6, 6)
        # Nothing but padding.
        np.testing.assert_array_equal(conv2d(cache, numbers(1, 1, 3, 0, 5), w, padding=2), np.zeros((1, 4, 2, 7)))

    def test_conv2d_rejects_wrong_arguments(self, cache: kk.ProgramCache) -> None:
        device, x, w = cache.device, numbers(1, 2, 3, 8, 9), numbers(2, 4, 3, 3, 3)
        wrong: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
            ((x, w[:, :2]), {}, "x has 3 channels, and the filters in w have 2"),
            ((x[:, :0], w[:, :0]), {}, "needs channels and taps"),
            ((x, w[..., :0]), {}, "needs channels and taps"),
            ((x, numbers(2, 4, 3, 9, 9)), {}, "filters of 9 × 9 are larger than the images, 8 × 9 with padding"),
            ((x[0], w), {}, "x must have 4 dimensions"),
            ((x.astype("f8"), w), {}, "x is float64"),
            ((x, w.astype("f2")), {}, "w is float16"),
            ((x, w, "reflect"), {}, "padding must be a number, two of them"),
            ((x, w, -1), {}, "padding must be an integer of at least 0"),
            ((x, w, (1, 2, 3)), {}, "padding must be an integer of at least 0"),
            ((x, w, 0.5), {}, "padding must be an integer of at least 0"),
            ((x, w, 0, 0), {}, "stride must be an integer of at least 1"),
            ((x, w, 0, True), {}, "stride must be an integer of at least 1"),
            ((x, w, "same", 2), {}, 'padding="same" is for stride 1'),
            ((x, w[:, :, :2], "same"), {}, 'padding="same" is for stride 1 and filters of odd size'),
            ((x, w), {"out": np.zeros((2, 4, 6, 7), "f4")}, "out must be a device array, got a ndarray"),
            (
                (x, w),
                {"out": device.empty((2, 4, 6, 6), "f4")},
                r"out has the shape .* and the result has \(2, 4, 6, 7\)",
            ),
        ]
        for positional, named, said in wrong:
            with pytest.raises(kk.ArgumentError, match=said) as caught:
                conv2d(cache, *positional, **named)
            assert "\n" not in str(caught.value)

    # --- calls of shapes that were seen before, and plans

    def test_calls_of_known_shapes_are_checked_and_correct(self, device: kk.Device, cache: kk.ProgramCache) -> None:
        for seed in (1, 2, 3):  # the second and third find what the first one found
            a, b = numbers(seed, 13, 20), numbers(seed + 9, 20, 12)
            left, right = device.array(a), device.array(b)
            check_gemm(gemm(cache, left, right), a, b)
            check_gemm(gemm(cache, left, right, alpha=2), a, b, alpha=2)
            into = device.full((13, 12), np.nan, "f4")
            assert gemm(cache, left, right, out=into) is into
            check_gemm(into, a, b)
            x, w = numbers(seed, 1, 2, 8, 9), numbers(seed + 9, 3, 2, 3, 3)
            check_conv2d(conv2d(cache, device.array(x), device.array(w), padding=(1, 1)), x, w, (1, 1))
        check_gemm(gemm(cache, a, b), a, b)  # NumPy's, of the same shapes
        with pytest.raises(kk.ArgumentError, match="float32"):
            gemm(cache, device.array(a.astype("i4")), right)
        square = device.array(numbers(1, 12, 12))
        gemm(cache, square, square)
        with pytest.raises(kk.ArgumentError, match="operands"):
            gemm(cache, square, square, out=square)
        with pytest.raises(kk.ArgumentError, match="needs c"):
            gemm(cache, left, right, beta=1.0)
        with pytest.raises(kk.ArgumentError, match="stride"):
            conv2d(cache, device.array(x), device.array(w), (1, 1), True)
        left.close()
        with pytest.raises(kk.DeviceError, match="closed"):
            gemm(cache, left, right)

    def test_a_plan_computes_anew_at_every_call(self, device: kk.Device, cache: kk.ProgramCache) -> None:
        a, b, c = numbers(1, 33, 17), numbers(2, 17, 20), numbers(3, 33, 20)
        left, right, into = device.array(a), device.array(b), device.array(c)
        with gemm.plan(cache, left, right) as plan, gemm.plan(cache, left, right, into, alpha=0.5, beta=2.0) as adding:
            check_gemm(plan(), a, b)
            assert plan() is plan.out and plan.selection.variant
            left.copy_from(a + 1)
            check_gemm(plan(), a + 1, b)
            assert adding() is into
            check_gemm(into, a + 1, b, c, alpha=0.5, beta=2.0)
            graph = kk.Graph(device)
            graph.add(plan.launch)
            left.copy_from(a)
            graph.launch()
            check_gemm(plan.out, a, b)
            graph.close()
        with pytest.raises(kk.DeviceError, match="plan is closed"):
            plan()
        x, w = numbers(1, 2, 3, 9, 8), numbers(2, 4, 3, 3, 3)
        with conv2d.plan(cache, device.array(x), device.array(w), padding=1, stride=2) as convolution:
            check_conv2d(convolution(), x, w, (1, 1), (2, 2))

    def test_a_plan_rejects_what_it_cannot_bind(self, device: kk.Device, cache: kk.ProgramCache) -> None:
        a = device.array(numbers(1, 4, 4))
        for wrong, said in (
            (lambda: gemm.plan(cache, numbers(1, 4, 4), a), "a of a plan must be in the device's memory"),
            (lambda: gemm.plan(cache, a, a, beta=1.0), "needs out"),
            (lambda: gemm.plan(cache, a, a, a), "operands"),
            (lambda: gemm.plan(cache, device.empty((0, 4)), a), "needs work"),
            (lambda: conv2d.plan(cache, a, a), "x must have 4 dimensions"),
        ):
            with pytest.raises(kk.ArgumentError, match=said):
                wrong()

    def test_a_pin_counts_at_once_for_known_shapes(self, device: kk.Device, cache: kk.ProgramCache) -> None:
        a, b, problem = numbers(1, 21, 22), numbers(2, 22, 24), {"m": 21, "n": 24, "k": 22}
        left, right = device.array(a), device.array(b)
        gemm(cache, left, right)
        tuned = GEMM.tuned_for(device, problem)
        other = next(v for v in tuned.space.variants(problem) if v != tuned.select(cache, problem).variant)
        tuned.pin(cache, problem, other)
        assert gemm.plan(cache, left, right).selection.variant == other
        compiled = cache.stats().compiles
        check_gemm(gemm(cache, left, right), a, b)
        assert cache.stats().compiles == compiled  # the plan has compiled it
        tuned.unpin(cache, problem)

    # --- both

    def test_every_variant_is_correct_and_writes_only_its_output(
        self, device: kk.Device, cache: kk.ProgramCache
    ) -> None:
        """A sample of each space, another one on each backend: verified at ragged sizes too, with guards behind every array, and
        run by name."""
        count = 12 if device.info.is_gpu else 5
        a, b = numbers(1, 70, 52), numbers(2, 52, 90)
        problem = {"m": 70, "n": 90, "k": 52}
        for kind in dict.fromkeys((*GEMM.kinds_on(device), "sliced", *float32_kinds(device, problem))):
            tried = count if kind == template_kind(device) else count // 2
            for _ in self.pinned(cache, GEMM.tuned(kind, device.capabilities.shared_bytes), problem, tried):
                check_gemm(gemm(cache, a, b), a, b)
        x, w = numbers(1, 2, 10, 23, 37), numbers(2, 20, 10, 3, 3)
        tuned = CONV2D.tuned_for(device)
        sizes = {"n": 2, "c": 10, "h": 23, "w": 37, "k": 20, "r": 3, "s": 3}
        problem = {**sizes, "stride_y": 1, "stride_x": 1, "pad_y": 1, "pad_x": 1}
        for _ in self.pinned(cache, tuned, problem, count):
            check_conv2d(conv2d(cache, x, w, 1), x, w, (1, 1))

    @staticmethod
    def pinned(cache: kk.ProgramCache, tuned: kk.Tuned, problem: dict[str, int], count: int) -> Iterator[kk.Variant]:
        device, values = cache.device, tuned.definition.template.values(problem)
        variants = tuned.definition.space.variants(values)
        cases = [tuned.definition.case(device, one) for one in tuned.definition.problems_to_check(problem)]
        for variant in random.Random(device.backend).sample(variants, min(count, len(variants))):
            launches, tried = tuned.definition.trials(device, variant, cases)
            assert len(tried) == 2
            runs = [
                TrialLaunch(launch.grid, launch.group, case, launch.shared_bytes)
                for launch, case in zip(launches, tried, strict=True)
            ]
            params, kernel = tuned.definition.template.params(device.language), launches[0].kernel
            outcome = try_variant(cache, launches[0].source, kernel, params, runs, tuned.definition.tolerance)
            assert not outcome.failure, f"{variant}: {outcome}"
            tuned.pin(cache, problem, variant)
            assert tuned.select(cache, problem).variant == variant
            yield variant
        assert tuned.unpin(cache, problem)

    def test_exploring_and_deterministic_calls_are_correct(self, cache: kk.ProgramCache) -> None:
        a, b = numbers(1, 40, 50), numbers(2, 50, 60)
        x, w = numbers(1, 1, 4, 12, 12), numbers(2, 8, 4, 3, 3)
        ways: tuple[dict[str, Any], ...] = ({"deterministic": True}, {"explore": 0.5})
        for way in ways:
            for _ in range(8):
                check_gemm(gemm(cache, a, b, **way), a, b)
                check_conv2d(conv2d(cache, x, w, **way), x, w)

    def test_variants_that_are_known_to_be_wrong_never_run(self, device: kk.Device, tmp_path: Path) -> None:
        """Where all variants of the device's own template failed, the plain one runs, unless it failed as well."""
        a, b = numbers(1, 5, 7), numbers(2, 7, 6)
        x, w = numbers(3, 1, 2, 8, 8), numbers(4, 3, 2, 3, 3)
        sizes = {"n": 1, "c": 2, "h": 8, "w": 8, "k": 3, "r": 3, "s": 3}
        strides = {"stride_y": 1, "stride_x": 1, "pad_y": 0, "pad_x": 0}
        with kk.ProgramCache(device, tmp_path) as cache:
            for templates, problem in ((GEMM, {"m": 5, "n": 6, "k": 7}), (CONV2D, sizes | strides)):

                def compute(templates: Any = templates, **options: Any) -> None:
                    if templates is GEMM:
                        check_gemm(gemm(cache, a, b, **options), a, b)
                    else:
                        check_conv2d(conv2d(cache, x, w, **options), x, w)

                more = float32_kinds(device, problem) if templates is GEMM else ()
                for kind in dict.fromkeys((*templates.kinds_on(device), *more, "plain")):
                    compute()
                    tuned = templates.tuned(kind, device.capabilities.shared_bytes)
                    values = tuned.definition.template.values(problem)
                    failed = []
                    for variant in {tuned.definition.space.default(values), *tuned.definition.space.variants(values)}:
                        try:
                            source = tuned.definition.source(device, variant, problem)
                        except (kk.ArgumentError, kk.Unsupported):
                            continue  # not on this device
                        failed.append(tuned.definition.record(device, problem, variant, source, [], "wrong", "made up"))
                    tuned.records(cache).add_all(failed)
                    tuned.forget(cache)
                compiles = cache.stats().compiles
                for options in ({}, {"explore": 0.5}, {"deterministic": True}):
                    with pytest.raises(kk.VariantError, match=r"failed for .*wrong \(.*: made up\)"):
                        compute(**options)
                assert cache.stats().compiles == compiles

    def test_a_closed_cache_is_an_error(self, device: kk.Device, cache: kk.ProgramCache) -> None:
        with kk.ProgramCache(device, cache.cache_dir) as closed:
            pass
        with pytest.raises(kk.DeviceError, match="closed"):
            gemm(closed, numbers(1, 4, 5), numbers(2, 5, 6))
        with pytest.raises(kk.DeviceError, match="closed"):
            conv2d(closed, numbers(1, 1, 1, 5, 5), numbers(2, 1, 1, 3, 3))


@pytest.mark.opencl
class TestOpenCL(KernelTests):
    backend = "opencl"


@pytest.mark.opengl
class TestOpenGL(KernelTests):
    backend = "opengl"


@pytest.mark.webgpu
class TestWebGPU(KernelTests):
    backend = "webgpu"


@pytest.mark.cuda
class TestCUDA(KernelTests):
    backend = "cuda"

    @pytest.mark.parametrize("library", ["torch", "cupy"])
    def test_arrays_on_the_gpu_are_shared(self, device: kk.Device, cache: kk.ProgramCache, library: str) -> None:
        module = pytest.importorskip(library, reason=f"{library} is not installed")
        on_gpu = (lambda host: module.from_numpy(host).cuda()) if library == "torch" else module.asarray
        on_host = (lambda array: array.cpu().numpy()) if library == "torch" else module.asnumpy
        a, b, c = numbers(1, 33, 45), numbers(2, 45, 61), numbers(3, 33, 61)
        found = gemm(cache, on_gpu(a), on_gpu(b), on_gpu(c), beta=1.0)
        assert type(found) is type(on_gpu(a))
        check_gemm(on_host(found), a, b, c, beta=1.0)
        x, w = numbers(1, 2, 5, 20, 21), numbers(2, 9, 5, 3, 3)
        found = conv2d(cache, on_gpu(x), on_gpu(w), 1)
        assert type(found) is type(on_gpu(x))
        check_conv2d(on_host(found), x, w, (1, 1))
        # Parts that begin anywhere: 4 bytes into the memory, and rows that are not next to each other.
        shifted = on_gpu(numbers(4, 33 * 45 + 1))[1:].reshape(33, 45)
        check_gemm(on_host(gemm(cache, shifted, on_gpu(b))), on_host(shifted), b)
        turned = on_gpu(np.ascontiguousarray(a.T)).T
        check_gemm(on_host(gemm(cache, turned, on_gpu(b))), a, b)


def test_the_functions_are_functions_whatever_was_imported_before() -> None:
    from kernelkeep.testing import run_python

    script = """
import kernelkeep.kernels.gemm.tiled, kernelkeep.kernels.conv2d.plain
from kernelkeep.kernels.gemm import vectors
from kernelkeep.kernels import conv2d, gemm
import kernelkeep.kernels
assert callable(gemm) and callable(conv2d) and kernelkeep.kernels.gemm is gemm and vectors.BODY
assert callable(kernelkeep.kernels.gemm) and callable(kernelkeep.kernels.conv2d)
"""
    run_python(script)
