"""The search: each variant once, all in the end, the good ones early."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import mean
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.variants.search import Search

SMALL = kk.VariantSpace(A=[1, 2, 3], B=[1, 2, 3, 4]).where(lambda v: v["A"] <= v["B"])


def asked(search: Search, time_of: Callable[[kk.Variant], float | None] = lambda variant: 1.0) -> list[kk.Variant]:
    """All it asks for."""
    found = []
    while (variant := search.next()) is not None:
        found.append(variant)
        search.tell(variant, time_of(variant))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_search_proposes_each_variant_once_and_ends(seed: int) -> None:
    search = Search(SMALL, {}, [], seed)
    assert search.size == len(SMALL)
    found = asked(search, lambda variant: None if variant["A"] == 2 else float(variant["B"]))
    assert len(found) == len(set(found)) and set(found) == set(SMALL)
    assert search.next() is None and search.size == len(SMALL)


def test_search_begins_with_the_given_variants() -> None:
    default, outside = SMALL.default(), kk.Variant({"A": 9, "B": 9})
    search = Search(SMALL, {}, [default, outside, default])
    found = asked(search)
    assert found[:2] == [default, outside]
    assert len(found) == search.size == len(SMALL) + 1


def test_search_is_deterministic() -> None:
    assert asked(Search(SMALL, {}, [], 3)) == asked(Search(SMALL, {}, [], 3)) != asked(Search(SMALL, {}, [], 4))


def test_search_proposes_only_what_the_problem_allows() -> None:
    space = SMALL.where(lambda v: v["A"] < v["n"])
    assert {variant["A"] for variant in asked(Search(space, {"n": 2}, []))} == {1}
    assert asked(Search(space, {"n": 0}, [])) == []


def test_search_continues_without_being_told_times() -> None:
    """Compiles run ahead: several are asked for before the first is known."""
    search = Search(SMALL, {}, [])
    assert len({search.next() for _ in range(len(SMALL))}) == len(SMALL)
    assert search.next() is None


# --- a landscape

LARGE = kk.VariantSpace(**{name: list(range(size)) for name, size in zip("ABCDE", (7, 6, 5, 5, 2), strict=True)})
VALLEY = {"A": 2, "B": 5, "C": 0, "D": 3, "E": 1}


def convex(variant: Any) -> float:
    return 1.0 + float(sum((variant[name] - low) ** 2 for name, low in VALLEY.items()))


def asks_until(wanted: dict[str, int], space: kk.VariantSpace, seed: int, limit: int = 100_000) -> int:
    search = Search(space, {}, [space.default()], seed)
    for count in range(1, limit):
        variant = search.next()
        assert variant is not None
        if variant == wanted:
            return count
        # One in eight fails, and says nothing about its neighbours.
        search.tell(variant, None if random.Random(str(variant)).random() < 0.125 else convex(variant))
    return limit


def test_search_moves_towards_the_best() -> None:
    assert len(LARGE) == 2100
    needed = [asks_until(VALLEY, LARGE, seed) for seed in range(20)]
    # At random it takes half of them on average.
    assert mean(needed) < len(LARGE) / 10, needed


def test_search_samples_a_space_too_large_to_list() -> None:
    huge = kk.VariantSpace(**{name: list(range(12)) for name in "ABCDE"})
    assert huge.combinations > 100_000
    search = Search(huge, {}, [])
    assert search.size is None
    assert asks_until(VALLEY, huge, 0, limit=2000) < 1000


def test_search_ends_in_a_huge_space_that_allows_nothing() -> None:
    huge = kk.VariantSpace(**{name: list(range(12)) for name in "ABCDE"}).where(lambda v: False)
    assert Search(huge, {}, []).next() is None
