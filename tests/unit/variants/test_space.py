"""Spaces of variants: which there are, which one is the default, and which lie next to each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelkeep as kk

SPACE = kk.VariantSpace(TILE=[8, 16, 32], VEC=[1, 2, 4])


# --- variants


def test_a_variant_equals_a_dict_with_its_values() -> None:
    variant = kk.Variant({"TILE": 8, "VEC": 1})
    assert variant["TILE"] == 8 and list(variant) == ["TILE", "VEC"] and len(variant) == 2
    assert variant == {"VEC": 1, "TILE": 8} and dict(variant) == {"VEC": 1, "TILE": 8}
    assert variant != {"TILE": 8} and variant != kk.Variant({"TILE": 8, "VEC": 2})
    assert {variant: "found"}[kk.Variant({"VEC": 1, "TILE": 8})] == "found"


def test_str_and_repr_of_a_variant() -> None:
    variant = kk.Variant({"TILE": 8, "KIND": "wide"})
    assert str(variant) == "TILE=8 KIND=wide"
    assert repr(variant) == "Variant(TILE=8, KIND='wide')"
    assert str(kk.Variant({})) == "the only variant"


def test_a_variant_is_immutable() -> None:
    values = {"TILE": 8}
    variant = kk.Variant(values)
    values["TILE"] = 16
    assert variant == {"TILE": 8}
    with pytest.raises(TypeError):
        variant["TILE"] = 16  # type: ignore[index]


# --- which there are


def test_variants_come_in_the_order_of_the_values() -> None:
    assert len(SPACE) == SPACE.combinations == 9
    assert [dict(variant) for variant in SPACE][:4] == [
        {"TILE": 8, "VEC": 1},
        {"TILE": 8, "VEC": 2},
        {"TILE": 8, "VEC": 4},
        {"TILE": 16, "VEC": 1},
    ]


def test_where_adds_a_condition_to_a_new_space() -> None:
    narrow = SPACE.where(lambda v: v["TILE"] >= 8 * v["VEC"])
    narrower = narrow.where(lambda v: v["VEC"] != 2)
    assert (len(SPACE), len(narrow), len(narrower)) == (9, 6, 4)
    assert all(variant["TILE"] >= 8 * variant["VEC"] for variant in narrow)  # type: ignore[operator]
    assert set(narrower) < set(narrow) < set(SPACE)


def test_a_space_contains_a_variant_by_values_and_types() -> None:
    narrow = SPACE.where(lambda v: v["TILE"] > 8)
    assert {"TILE": 16, "VEC": 1} in narrow and kk.Variant({"VEC": 1, "TILE": 16}) in narrow
    for absent in (
        {"TILE": 8, "VEC": 1},
        {"TILE": 16},
        {"TILE": 16, "VEC": 3},
        {"TILE": 16, "VEC": 1, "X": 1},
        16,
        "TILE",
    ):
        assert absent not in narrow


def test_a_condition_sees_the_problem() -> None:
    space = SPACE.where(lambda v: v.get("n", 1024) % v["TILE"] == 0)
    assert len(space) == 9
    assert {variant["TILE"] for variant in space.variants({"n": 48})} == {8, 16}
    assert space.allows({"TILE": 16, "VEC": 1}, {"n": 48}) and not space.allows({"TILE": 32, "VEC": 1}, {"n": 48})


def test_a_space_without_parameters_has_one_variant() -> None:
    empty = kk.VariantSpace()
    assert list(empty) == [{}] and len(empty) == 1 and empty.default() == {}
    assert empty.neighbours(empty.default()) == []


def test_values_of_a_space_are_plain_and_unique() -> None:
    half: Any = np.float32(0.5)
    space = kk.VariantSpace(TILE=np.array([8, 16, 8]), SCALE=[half], ON=[True, False], KIND=("a", "b"))
    assert space.parameters == {"TILE": (8, 16), "SCALE": (0.5,), "ON": (True, False), "KIND": ("a", "b")}
    assert type(space.parameters["TILE"][0]) is int
    assert kk.VariantSpace(TILE=range(3)).parameters["TILE"] == (0, 1, 2)


def test_the_digest_depends_on_values_and_not_on_conditions() -> None:
    assert SPACE.digest == kk.VariantSpace(VEC=[1, 2, 4], TILE=[8, 16, 32]).digest
    assert SPACE.digest == SPACE.where(lambda v: v["VEC"] > 1).digest
    assert SPACE.digest != kk.VariantSpace(TILE=[8, 16], VEC=[1, 2, 4]).digest


def test_repr_of_a_space() -> None:
    assert repr(SPACE.where(lambda v: True)) == "VariantSpace(TILE=[8, 16, 32], VEC=[1, 2, 4]) with 1 conditions"


# --- the default


def test_the_default_is_the_first_variant_or_the_given_one() -> None:
    assert SPACE.default() == {"TILE": 8, "VEC": 1}
    assert SPACE.with_default(TILE=16).default() == {"TILE": 16, "VEC": 1}
    assert SPACE.with_default(TILE=16).with_default(VEC=4).default() == {"TILE": 16, "VEC": 4}
    assert SPACE.with_default(VEC=2).where(lambda v: True).default() == {"TILE": 8, "VEC": 2}


def test_a_default_that_is_not_allowed_is_replaced_by_the_nearest() -> None:
    assert SPACE.where(lambda v: v["TILE"] > 8).default() == {"TILE": 16, "VEC": 1}
    narrow = SPACE.with_default(TILE=32, VEC=4).where(lambda v: v.get("n", 64) % v["TILE"] == 0)
    assert narrow.default({"n": 64}) == {"TILE": 32, "VEC": 4}
    assert narrow.default({"n": 48}) == {"TILE": 8, "VEC": 4}


def test_a_rule_returns_the_default_for_a_problem() -> None:
    space = SPACE.with_default(lambda p: {"TILE": p["n"], "VEC": 1})
    assert space.default({"n": 7}) == {"TILE": 7, "VEC": 1}  # it may be outside the lists
    assert space.default() == {"TILE": 8, "VEC": 1}
    with pytest.raises(kk.ArgumentError, match="the parameters are"):
        SPACE.with_default(lambda p: {"TILE": 8}).default({"n": 7})


# --- neighbours


@settings(deadline=None)
@given(st.data())
def test_neighbours_differ_in_one_step_of_one_parameter(data: st.DataObject) -> None:
    lists = data.draw(
        st.dictionaries(
            st.sampled_from("ABCD"), st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True), min_size=1
        )
    )
    space = kk.VariantSpace(**lists).where(lambda v: sum(v.values()) % 5 != 0)
    for variant in space:
        near = space.neighbours(variant)
        assert len(near) == len(set(near)) and set(near) <= set(space)
        for other in near:
            (name,) = [name for name in lists if other[name] != variant[name]]
            assert abs(lists[name].index(other[name]) - lists[name].index(variant[name])) == 1  # type: ignore[arg-type]
            assert variant in space.neighbours(other)


def test_a_default_outside_the_lists_has_neighbours_inside() -> None:
    assert SPACE.neighbours(kk.Variant({"TILE": 7, "VEC": 1})) == [{"TILE": 8, "VEC": 1}]


# --- wrong use


@pytest.mark.parametrize("values", [16, "8 16", b"8", None, [], [None], [[8]], [np.zeros(2)], [object()]])
def test_a_space_rejects_what_is_not_a_list_of_values(values: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="parameter TILE"):
        kk.VariantSpace(TILE=values)


@pytest.mark.parametrize("condition", [None, True, "TILE > 8"])
def test_where_rejects_what_is_not_a_function(condition: Any) -> None:
    with pytest.raises(kk.ArgumentError, match="condition"):
        SPACE.where(condition)


def test_a_condition_that_reads_an_unknown_name_is_an_argument_error() -> None:
    space = SPACE.where(lambda v: v["TIEL"] > 8)
    for use in (lambda: len(space), space.default, lambda: {"TILE": 8, "VEC": 1} in space):
        with pytest.raises(kk.ArgumentError, match=r"asks for 'TIEL', which is not among \['TILE', 'VEC'\]"):
            use()


def test_with_default_rejects_unknown_names_and_values() -> None:
    with pytest.raises(kk.ArgumentError, match="no parameter TIEL"):
        SPACE.with_default(TIEL=8)
    with pytest.raises(kk.ArgumentError, match="3 is not among the values of TILE"):
        SPACE.with_default(TILE=3)
    with pytest.raises(kk.ArgumentError, match="function of a problem"):
        SPACE.with_default({"TILE": 8})  # type: ignore[arg-type]


def test_a_space_that_allows_nothing_has_no_default() -> None:
    nothing = SPACE.where(lambda v: v.get("n", 1) > 1)
    assert len(nothing) == 0
    with pytest.raises(kk.ArgumentError, match="no variant of the space is allowed"):
        nothing.default()
    with pytest.raises(kk.ArgumentError, match=r"for \{'n': 1\}"):
        nothing.default({"n": 1})
    assert math.isfinite(nothing.combinations)
