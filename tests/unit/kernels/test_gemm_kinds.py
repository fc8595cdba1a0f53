"""Which template serves a product, and what the templates for tensor cores are made of; no GPU is needed."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.devices.info import Capabilities
from kernelkeep.kernels.gemm import single_warps, tensor_half, tensor_single, tensor_warps
from kernelkeep.kernels.gemm.elements import float32_kinds
from kernelkeep.kernels.gemm.tensor_tiles import half_kind, single_kind
from kernelkeep.testing import skip_backend

HOPPER = Capabilities(tile_products=True, warp_products=True, clusters=True, shared_bytes=232448)
AMPERE = Capabilities(warp_products=True, shared_bytes=101376)
TEXTS: dict[str, Any] = {
    "half": tensor_half,
    "warps": tensor_warps,
    "single": tensor_single.template(split=1),
    "tf32": tensor_single.template(split=0),
}


def problem(m: int, n: int, k: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k}


def on(capabilities: Capabilities, runs_resident: bool = False) -> Any:
    return SimpleNamespace(capabilities=capabilities, runs_resident=runs_resident)


def variants(text: Any) -> list[dict[str, int]]:
    every = (dict(zip(text.VALUES, values, strict=True)) for values in itertools.product(*text.VALUES.values()))
    return [variant for variant in every if text.allowed(variant)]


@pytest.mark.parametrize(
    ("sizes", "hopper", "ampere"),
    [
        ((1024, 1024, 1024), "tensor", "warps"),
        ((1, 4096, 4096), "tensor", "warps"),
        ((1024, 1024, 1028), None, None),  # rows of A do not begin at multiples of 16 bytes
        ((1024, 1020, 1024), None, None),
        ((32, 32, 32), None, None),
    ],
)
def test_halves_use_tensor_cores_where_rows_allow_it(
    sizes: tuple[int, int, int], hopper: str | None, ampere: str | None
) -> None:
    assert half_kind(on(HOPPER), problem(*sizes)) == hopper
    assert half_kind(on(AMPERE), problem(*sizes)) == ampere
    assert half_kind(on(Capabilities()), problem(*sizes)) is None


@pytest.mark.parametrize(
    ("sizes", "single", "tf32"),
    [
        ((2048, 2048, 2048), "tensor", "tensor"),
        ((1024, 1028, 1020), "tensor", "tensor"),
        ((1024, 1030, 1024), None, None),
        ((64, 4096, 4096), "tensor", "tensor"),
        ((16, 4096, 4096), None, None),  # few rows
        ((4096, 16, 4096), None, None),  # few columns
        ((512, 384, 2048), None, None),  # few tiles
        ((64, 64, 64), None, None),
    ],
)
def test_large_products_of_floats_use_them(sizes: tuple[int, int, int], single: str | None, tf32: str | None) -> None:
    assert single_kind(on(HOPPER), problem(*sizes), tf32=False) == single
    assert single_kind(on(HOPPER), problem(*sizes), tf32=True) == tf32
    assert single_kind(on(AMPERE), problem(*sizes), tf32=True) is None


def test_other_products_of_floats_may_share_sums_in_clusters() -> None:
    odd = problem(190, 381, 3947)
    assert float32_kinds(on(HOPPER), problem(2048, 2048, 2048)) == ("tensor",)
    assert "warps" in float32_kinds(on(HOPPER), odd)
    for other in (AMPERE, Capabilities(warp_products=True, clusters=True)):
        assert float32_kinds(on(other), odd) == ()  # the device's own
    assert float32_kinds(on(HOPPER), None) == ()


def test_beside_a_kernel_that_stays_no_group_needs_a_whole_multiprocessor() -> None:
    large, beside = problem(2048, 2048, 2048), on(HOPPER, runs_resident=True)
    assert half_kind(beside, large) == "warps"
    assert single_kind(beside, large, tf32=True) is None
    assert float32_kinds(beside, large) == float32_kinds(beside, problem(190, 381, 3947)) == ()


def test_shared_memory_holds_the_sums_of_a_tile_and_clusters_cover_c() -> None:
    for variant in variants(single_warps):
        rows, columns = variant["BLOCK_M"], variant["BLOCK_N"]
        assert 4 * rows * (columns + 8) <= single_warps.dynamic_shared_bytes(variant) <= 113 * 1024
        assert rows % variant["SLICES"] == 0 and single_warps.group(variant) <= 256
        groups = single_warps.grid({**problem(190, 381, 3947), **variant})
        assert groups == -(-190 // rows) * -(-381 // columns) * variant["SLICES"]


@pytest.mark.parametrize("name", ["half", "single", "tf32"])
def test_one_group_fits_on_a_multiprocessor_and_no_second(name: str) -> None:
    text = TEXTS[name]
    found = [text.dynamic_shared_bytes(variant) for variant in variants(text)]
    assert found
    for nbytes in found:
        assert nbytes + 1024 <= 227 * 1024 and 2 * nbytes > 228 * 1024


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("size", [8, 512, 1024, 2048, 8192, 8200])
def test_the_default_is_a_variant_and_covers_the_product(name: str, size: int) -> None:
    text, sizes = TEXTS[name], problem(size, size, size)
    chosen = text.default(sizes)
    assert chosen in variants(text)
    tiles = -(-size // chosen.get("BLOCK_M", 128)) * -(-size // chosen.get("BLOCK_N", 128))
    groups = tiles * chosen.get("SLICES", 1)
    assert text.grid({**sizes, **chosen}) == min(groups, chosen.get("GROUPS", groups))


@pytest.mark.parametrize(
    ("name", "sizes", "slices"),
    [
        ("single", (64, 4096, 4096), 2),
        ("single", (512, 512, 512), 2),
        ("single", (1024, 1024, 1024), 1),
        ("tf32", (512, 512, 512), 1),
        ("half", (128, 1024, 8192), 4),
        ("half", (128, 4096, 4096), 2),
        ("half", (512, 512, 512), 1),
    ],
)
def test_groups_share_a_tile_where_there_are_few_and_sums_are_long(
    name: str, sizes: tuple[int, int, int], slices: int
) -> None:
    text = TEXTS[name]
    chosen = text.default(problem(*sizes))
    assert chosen in variants(text) and chosen["SLICES"] == slices
    tiles = -(-sizes[0] // chosen.get("BLOCK_M", 128)) * -(-sizes[1] // chosen.get("BLOCK_N", 128))
    assert text.grid({**problem(*sizes), **chosen}) == tiles * slices


@pytest.mark.parametrize("name", ["half", "warps", "single", "single in clusters"])  # tf32 is a part of single
def test_the_texts_compile(name: str) -> None:
    from kernelkeep.devices.cuda import compiler, toolkit

    try:
        toolkit.compiler_version()
    except kk.DeviceError as error:
        skip_backend("cuda", str(error))
    text = single_warps if name == "single in clusters" else TEXTS[name]
    smallest = min(variants(text), key=text.dynamic_shared_bytes)
    defines = {"BFLOAT": 1, **text.BODY.defines, **smallest, **text.constants(problem(190, 381, 3947))}
    assert compiler.compile_for(replace(text.BODY, defines=defines), "sm_80" if name == "warps" else "sm_90")
