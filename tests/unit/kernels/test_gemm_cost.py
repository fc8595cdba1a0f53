"""The model that chooses gemm's template and variant where nothing was measured. No device needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernelkeep.devices.base import Capabilities
from kernelkeep.kernels.gemm import single_warps, sliced, tiled
from kernelkeep.kernels.gemm.cost import MODELLED, GemmModel, TensorModel, suits
from kernelkeep.kernels.gemm.tensor_single import template

TEMPLATES: dict[str, Any] = {"tiled": tiled, "sliced": sliced, "warps": single_warps}
PORTABLE = ("tiled", "sliced")  # what every GPU can run


def gpu(processors: int = 132, shared_bytes: int = 227 << 10, items: int = 1024) -> Any:
    limits = Capabilities(shared_bytes=shared_bytes, max_group_items=items)
    return SimpleNamespace(capabilities=limits, count_processors=lambda: processors)


def best(m: int, n: int, k: int, device: Any = None, kinds: tuple[str, ...] = PORTABLE) -> tuple[str, dict[str, int]]:
    """The kind and the variant with the shortest expected time."""
    found = []
    for kind in kinds:
        model, problem = GemmModel(kind), {"m": m, "n": n, "k": k}
        variant = model.best(device or gpu(), problem)
        if variant is not None:
            expected = model.milliseconds(device or gpu(), problem, variant)
            assert expected is not None and expected > 0
            found.append((expected, kind, dict(variant)))
    return min(found)[1:]


@pytest.mark.parametrize("kind", MODELLED)
def test_the_model_knows_only_variants_of_the_space(kind: str) -> None:
    shapes = [(m, n, 300) for m in (1, 7, 64, 500, 3000) for n in (1, 3, 16, 100, 4096)]
    for m, n, k in shapes:
        variant = GemmModel(kind).best(gpu(), {"m": m, "n": n, "k": k})
        assert variant is None or (TEMPLATES[kind].allowed(variant) and suits(kind, variant, m, n))


def test_vectors_and_large_matrices_have_the_template_that_suits_them() -> None:
    for m, n, k in ((1, 4096, 4096), (4096, 1, 4096), (16, 4096, 4096), (8, 1000, 3000), (1, 5, 100_000)):
        assert best(m, n, k)[0] == "sliced", (m, n, k)
    for size in (512, 1024, 4096):
        kind, variant = best(size, size, size)
        assert kind == "tiled" and variant["BLOCK_M"] * variant["BLOCK_N"] >= 32 * 64


def test_groups_share_long_sums_where_c_has_few_tiles_and_they_can() -> None:
    for m, n, k in ((190, 381, 3947), (256, 256, 4096), (4096, 16, 4096), (856, 50, 2687)):
        kind, variant = best(m, n, k, kinds=MODELLED)
        assert kind == "warps" and variant["SLICES"] > 1, (m, n, k)
        groups = single_warps.grid({"m": m, "n": n, "k": k, **variant})
        assert groups >= 66, "half of the processors have nothing to do"
    for m, n, k in ((1, 4096, 4096), (10, 22, 2421), (100, 100, 100), (1031, 1209, 21)):
        assert best(m, n, k, kinds=MODELLED)[0] != "warps", (m, n, k)


def test_every_shape_has_a_variant_also_on_small_devices() -> None:
    small = gpu(processors=8, shared_bytes=16 << 10, items=256)
    for m in (1, 2, 5, 33, 1000, 100_000):
        for n in (1, 2, 5, 33, 1000, 100_000):
            for device in (gpu(), gpu(processors=0), small):
                kind, variant = best(m, n, 77, device)
                assert TEMPLATES[kind].shared_bytes(variant) <= device.capabilities.shared_bytes
                assert TEMPLATES[kind].group(variant) <= device.capabilities.max_group_items


def test_more_work_takes_longer_and_more_processors_less() -> None:
    model, variant = GemmModel("tiled"), tiled.DEFAULT

    def expected(size: int, processors: int = 132) -> float:
        found = model.milliseconds(gpu(processors), {"m": size, "n": size, "k": size}, variant)
        assert found is not None
        return found

    assert expected(256) < expected(1024) < expected(4096)
    assert expected(4096, 20) > 3 * expected(4096)


def test_large_products_on_tensor_cores_have_an_expected_time() -> None:
    model, text = TensorModel(), template(split=1)

    def expected(size: int, processors: int = 132) -> float:
        problem = {"m": size, "n": size, "k": size}
        found = model.milliseconds(gpu(processors), problem, text.default(problem))
        assert found is not None
        return found

    assert 0 < expected(1024) < expected(2048) < expected(8192)
    assert expected(4096, 66) > 1.5 * expected(4096)
    for rows in text.VALUES["BLOCK_M"]:
        assert model.milliseconds(gpu(), {"m": 64, "n": 64, "k": 64}, {**text.DEFAULT, "BLOCK_M": rows})


def test_a_variant_that_nobody_fitted_has_no_time() -> None:
    unknown = {**tiled.DEFAULT, "DEPTH": 64, "SLICES": 8}
    assert GemmModel("tiled").milliseconds(gpu(), {"m": 64, "n": 64, "k": 64}, unknown) is None
