"""Which variant is chosen from what is known, and what is said about it. No device needed."""

from __future__ import annotations

import math
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelkeep as kk
from kernelkeep.variants.known_failures import KnownFailures
from kernelkeep.variants.record import Choice, Record
from kernelkeep.variants.select import Knowledge, distance_between, fastest, is_tie, select

HERE, THERE = "d" * 64, "e" * 64
PROBLEM = {"m": 256, "n": 256}


def record(tile: int, ms: float | list[float], problem: Any = None, **changes: Any) -> Record:
    samples = ms if isinstance(ms, list) else [ms] * 3
    facts: dict[str, Any] = dict(
        tuned="gemm",
        source=f"{tile:064x}",
        space="",
        device=HERE,
        device_name="opencl_this",
        architecture="opencl PoCL x86",
        problem=PROBLEM if problem is None else problem,
        variant={"TILE": tile},
        samples_ms=samples,
        verified=True,
    )
    return Record(**facts | changes)


def choice(tile: int, problem: Any = None, **changes: Any) -> Choice:
    facts: dict[str, Any] = dict(tuned="gemm", device=HERE, problem=problem or PROBLEM, variant={"TILE": tile})
    return Choice(**facts | changes)


def chosen(*here: Record, alike: Any = (), choices: Any = (), **changes: Any) -> Any:
    facts: dict[str, Any] = dict(
        name="gemm",
        device_name="This Device",
        architecture="opencl PoCL x86",
        problem=PROBLEM,
        here=list(here),
        alike=list(alike),
        choices=list(choices),
        default=kk.Variant({"TILE": 1}),
        fits=lambda record: True,
        work=lambda problem: float(math.prod(problem.values())),
        compiled_in=lambda problem: {},
        others=lambda: iter(kk.Variant({"TILE": tile}) for tile in (8, 16)),
    )
    # Every source is named after its tile, as `record` does.
    failures = KnownFailures(
        here, PROBLEM, lambda variant: f"{variant['TILE']:064x}", changes.pop("counts", lambda _: True)
    )
    return select(Knowledge(**facts | {"failures": failures} | changes))


# --- the order of what counts


def test_without_records_the_default_is_selected() -> None:
    found = chosen()
    assert (found.variant, found.basis, found.expected_ms, found.distance) == ({"TILE": 1}, "default", None, None)
    assert "TILE=1 is the default: nothing was measured on This Device" in found.reason
    assert chosen(record(8, 1.0, failure="wrong")).basis == "default"


def test_the_fastest_for_this_problem_is_selected() -> None:
    found = chosen(record(8, 3.0), record(16, 1.5), record(32, 2.0))
    assert (found.variant, found.basis, found.expected_ms, found.distance) == ({"TILE": 16}, "exact", 1.5, 0.0)
    assert found.reason == "TILE=16 was the fastest for this problem on this device: 1.5 ms over 3 samples"
    assert "over one sample" in chosen(record(8, [3.0])).reason


def test_failed_variants_are_never_selected() -> None:
    for failure in ("compile", "wrong", "guard", "crashed", "hung", "slow", "refused"):
        assert chosen(record(8, 0.1, failure=failure), record(16, 1.5)).variant == {"TILE": 16}
    # Nor by having been chosen once, before it was found out.
    assert chosen(record(8, 0.1, failure="wrong"), record(16, 1.5), choices=[choice(8)]).variant == {"TILE": 16}


def test_records_of_an_old_template_do_not_count() -> None:
    found = chosen(record(8, 0.1), record(16, 1.5), fits=lambda r: r.variant["TILE"] != 8)
    assert found.variant == {"TILE": 16}
    assert chosen(record(8, 0.1), fits=lambda r: False).basis == "default"


def test_the_time_of_the_nearest_problem_is_scaled_by_the_work() -> None:
    near, far = {"m": 128, "n": 256}, {"m": 8, "n": 8}
    found = chosen(record(8, 0.5, near), record(16, 0.7, near), record(32, 0.001, far))
    assert (found.variant, found.basis, found.expected_ms) == ({"TILE": 8}, "nearest", 1.0)
    assert found.distance == pytest.approx(1, abs=0.02)
    assert found.reason == (
        "TILE=8 was the fastest for the nearest problem measured (m=128 n=256) on this device: 0.5 ms over 3 samples"
    )


def test_a_nearest_problem_without_usable_records_is_skipped() -> None:
    near, far = {"m": 128, "n": 256}, {"m": 8, "n": 8}
    found = chosen(record(8, 0.5, near), record(32, 0.001, far), fits=lambda r: r.problem != near)
    assert found.variant == {"TILE": 32} and found.basis == "nearest"


def test_the_choice_of_the_nearest_problem_counts() -> None:
    near = {"m": 128, "n": 256}
    found = chosen(record(8, 0.5, near), record(16, 0.49, near), choices=[choice(8, near)])
    assert found.variant == {"TILE": 8} and found.basis == "nearest"


def test_different_constants_add_to_the_distance() -> None:
    one, other = {"m": 300, "n": 256}, {"m": 240, "n": 256}
    records = (record(8, 1.0, one), record(16, 1.0, other))
    assert chosen(*records).variant == {"TILE": 16}
    # 300 is no multiple of 16 either; where that is compiled in, 240 is another program than 256 would have.
    fours = chosen(*records, compiled_in=lambda p: {"VECTOR": 4 if p["m"] != 240 else 1})
    assert fours.variant == {"TILE": 8} and fours.distance is not None and fours.distance < 1


def test_problems_with_other_names_or_strings_do_not_count() -> None:
    assert chosen(record(8, 1.0, {"m": 256}), record(8, 1.0, {"m": 256, "k": 256})).basis == "default"
    assert chosen(record(8, 1.0, {"m": 256, "n": "wide"})).basis == "default"


def test_records_of_the_same_architecture_are_used() -> None:
    theirs = dict(device=THERE, device_name="opencl_other")
    found = chosen(alike=[record(8, 3.0, **theirs), record(16, 2.0, **theirs)])
    assert (found.variant, found.basis, found.expected_ms, found.distance) == (
        {"TILE": 16}, "architecture", 2.0, 0.0,
    )  # fmt: skip
    assert found.reason == (
        "TILE=16 was the fastest for this problem on opencl_other, which is opencl PoCL x86 as this one: "
        "2 ms over 3 samples"
    )
    near = chosen(alike=[record(8, 3.0, {"m": 512, "n": 256}, **theirs)])
    assert (
        near.basis == "architecture" and near.expected_ms == 1.5 and near.distance and "nearest problem" in near.reason
    )
    # What was measured here counts first, even of another problem.
    both = chosen(record(32, 9.0, {"m": 8, "n": 8}), alike=[record(16, 2.0, **theirs)])
    assert both.variant == {"TILE": 32} and both.basis == "nearest"


# --- what is known to fail

FAILURES = ("compile", "wrong", "guard", "crashed", "hung", "refused")


@pytest.mark.parametrize("failure", FAILURES)
def test_select_raises_where_every_variant_failed(failure: str) -> None:
    failed = [record(tile, [], failure=failure, detail=f"y[{tile}] is 3") for tile in (1, 8, 16)]
    with pytest.raises(
        kk.VariantError, match=rf"every variant of gemm failed for m=256 n=256 on This Device.*3 {failure}"
    ) as e:
        chosen(*failed)
    assert len(e.value.failures) == 3 and e.value.failures[0] == ({"TILE": 1}, failure, "y[1] is 3")
    again = pickle.loads(pickle.dumps(e.value))
    assert again.failures == e.value.failures and str(again) == str(e.value)
    # One that was not tried is left, the most like the default first.
    found = chosen(*failed[:1])
    assert (found.variant, found.basis) == ({"TILE": 8}, "untried") and f"failed ({failure}: y[1] is 3)" in found.reason
    assert chosen(*failed[:2]).variant == {"TILE": 16}
    # What failed is not what would be compiled today, or the verdict does not count any more.
    edited = [record(1, [], failure=failure, source="old"), *failed[1:]]
    assert chosen(*edited).basis == "default"
    mended = chosen(*failed, counts=lambda r: False)
    assert mended.basis == "default" and f"it failed ({failure}" in mended.reason
    # Slow is right.
    assert chosen(record(1, 90.0, failure="slow"), *failed[1:]).basis == "default"


def test_a_failed_variant_raises_even_when_pinned_or_deterministic() -> None:
    failed = record(1, [], failure="wrong", detail="y[7] is 3")
    with pytest.raises(kk.VariantError, match=r"TILE=1, which is pinned for gemm, failed.*TILE=1: y\[7\] is 3"):
        chosen(failed, choices=[choice(1, pinned=True)])
    with pytest.raises(kk.VariantError, match="TILE=1, the default of gemm, which alone may run, failed"):
        chosen(failed, deterministic=True)
    assert chosen(deterministic=True).basis == "deterministic"
    assert chosen(failed, record(8, 1.0), deterministic=True, choices=[choice(8, pinned=True)]).variant == {"TILE": 8}


def test_a_program_that_was_wrong_for_another_problem_is_the_last_resort() -> None:
    near, far = {"m": 128, "n": 256}, {"m": 8, "n": 8}
    wrong = record(8, [], near, failure="wrong", detail="y[7] is 3")
    assert chosen(wrong, record(8, 0.1, far), record(16, 0.5, far)).variant == {"TILE": 16}
    assert chosen(wrong, record(8, 0.1), record(16, 0.5)).variant == {"TILE": 8}, "for this problem it was right"
    others = [record(tile, [], near, failure="wrong") for tile in (1, 16)]
    found = chosen(wrong, *others)
    assert found.variant == {"TILE": 1} and "failed for m=128 n=256" in found.reason
    here = record(1, [], failure="wrong")
    assert chosen(wrong, *others, here).variant == {"TILE": 8}
    assert chosen(record(1, [], near, failure="hung")).basis == "default", "that is about its size"


# --- decisions


def test_a_choice_beats_medians_of_other_days() -> None:
    records = record(8, 1.0), record(16, 0.9)
    assert chosen(*records).variant == {"TILE": 16}
    found = chosen(*records, choices=[choice(8, reason="the fastest measured")])
    assert (found.variant, found.expected_ms, found.basis) == ({"TILE": 8}, 1.0, "exact")
    kept = chosen(*records, choices=[choice(8, reason="in use before, and a tie with TILE=16 (0.9 ms)")])
    assert kept.reason == (
        "TILE=8 is kept for this problem: 1 ms over 3 samples; in use before, and a tie with TILE=16 (0.9 ms)"
    )


def test_a_choice_for_another_problem_or_an_old_template_does_not_count() -> None:
    records = record(8, 1.0), record(16, 0.9)
    assert chosen(*records, choices=[choice(8, {"m": 1, "n": 1})]).variant == {"TILE": 16}
    assert chosen(*records, choices=[choice(8)], fits=lambda r: r.variant["TILE"] == 16).variant == {"TILE": 16}
    assert chosen(*records, choices=[choice(64)]).variant == {"TILE": 16}


def test_a_pin_beats_every_measurement() -> None:
    found = chosen(record(8, 1.0), record(16, 5.0), choices=[choice(16, pinned=True)])
    assert (found.variant, found.basis, found.expected_ms) == ({"TILE": 16}, "pinned", 5.0)
    assert found.reason == "TILE=16 was pinned for this problem"
    assert chosen(choices=[choice(32, pinned=True)]).expected_ms is None


# --- ties


def test_near_ties_keep_the_incumbent() -> None:
    eight, sixteen = record(8, 1.02), record(16, 1.0)
    assert fastest([eight, sixteen]) is sixteen
    assert fastest([eight, sixteen], kk.Variant({"TILE": 8})) is eight
    assert fastest([record(8, 1.05), sixteen], kk.Variant({"TILE": 8})) is sixteen
    assert fastest([sixteen], kk.Variant({"TILE": 8})) is sixteen
    assert fastest([record(8, 0.1, failure="wrong"), sixteen], kk.Variant({"TILE": 8})) is sixteen
    assert fastest([]) is None and fastest([record(8, [])]) is None


def test_scattered_samples_widen_a_tie_up_to_a_limit() -> None:
    steady, scattered = record(16, [1.0, 1.0, 1.0]), record(8, [0.98, 1.08, 1.18])
    assert is_tie(scattered, steady) and not is_tie(record(8, 1.08), steady)
    wild = record(8, [0.1, 1.3, 2.5])
    assert not is_tie(wild, steady)


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8), st.integers(0, 7))
def test_the_choice_is_within_a_tie_of_the_best(times: list[float], held: int) -> None:
    records = [record(number, ms) for number, ms in enumerate(times)]
    found = fastest(records, kk.Variant({"TILE": held}))
    assert found is not None and found.median_ms is not None
    assert found.median_ms <= min(times) * 1.15
    assert found.median_ms == min(times) or found.variant == {"TILE": held}


def test_the_median_of_samples() -> None:
    assert record(8, [3.0, 1.0, 2.0]).median_ms == 2.0 and record(8, [1.0, 2.0]).median_ms == 1.5
    assert msgspec.structs.replace(record(8, 1.0), samples_ms=[]).median_ms is None


# --- distances


@settings(deadline=None)
@given(st.integers(0, 4096), st.integers(0, 4096), st.integers(0, 4096))
def test_distance_is_a_metric(a: int, b: int, c: int) -> None:
    def far(one: int, other: int) -> float:
        return distance_between({"n": one}, {"n": other})

    assert far(a, a) == 0 and far(a, b) == pytest.approx(far(b, a)) and (far(a, b) > 0) == (a != b)
    assert far(a, c) <= far(a, b) + far(b, c) + 1e-9


def test_distance_counts_doublings() -> None:
    assert distance_between({"n": 1023}, {"n": 2047}) == 1
    assert distance_between({"n": 1023, "m": 3}, {"n": 2047, "m": 7}) == 2
    assert distance_between({"n": 7}, {"m": 7}) == distance_between({"n": 7}, {"n": "7"}) == math.inf
    assert distance_between({"n": "a"}, {"n": "a"}) == 0


# --- a model of the times


def modelled(problem: Any, variant: Any) -> float:
    """Tiles of 1 take a millisecond for 256 × 256, larger ones as many times as long."""
    return float(variant["TILE"] * problem["m"] * problem["n"] / 256**2)


def test_a_model_chooses_where_nothing_was_measured() -> None:
    found = chosen(estimate=modelled)
    assert (found.variant, found.basis, found.expected_ms, found.distance) == ({"TILE": 1}, "model", 1.0, None)
    assert "never measured" in found.reason
    assert chosen(estimate=modelled, deterministic=True).basis == "deterministic"


def test_a_measurement_of_the_problem_itself_counts_more_than_a_model() -> None:
    assert chosen(record(16, 5.0), estimate=modelled).basis == "exact"
    far = record(8, 1.0, {"m": 512, "n": 256})
    there = record(16, 5.0, device=THERE)
    assert chosen(far, alike=[there], estimate=modelled).variant == {"TILE": 16}


def test_a_model_overrules_a_neighbour_that_it_expects_to_be_slower() -> None:
    near = record(8, 1.0, {"m": 512, "n": 256})
    assert chosen(near).basis == "nearest"
    assert chosen(near, estimate=modelled).basis == "model"
    kept = chosen(near, estimate=lambda problem, variant: problem["m"] * (1.05 if variant["TILE"] == 8 else 1.0))
    assert (kept.basis, kept.expected_ms) == ("nearest", 0.5)
    failed = record(1, 0.0, failure="wrong")
    assert chosen(near, failed, estimate=modelled).variant == {"TILE": 8}


def test_no_estimate_is_below_what_the_memory_allows() -> None:
    near = record(8, 1.0, {"m": 1 << 20, "n": 256})
    assert chosen(near, least_ms=0.25).expected_ms == 0.25
    assert chosen(estimate=modelled, least_ms=3.0).expected_ms == 3.0
    assert chosen(record(8, 1.0), least_ms=3.0).expected_ms == 1.0  # a measurement is what it is
