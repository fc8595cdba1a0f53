"""A tuned kernel's definition: its arguments, what it is verified on, and how exactly."""

from __future__ import annotations

import pytest

import kernelkeep as kk

SAXPY = kk.Template(
    "y[0] = 0.0f;",
    [kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    scalars={"a": 0.1},
)


def test_tuned_rejects_wrong_arguments() -> None:
    template, space = SAXPY, kk.VariantSpace(TIMES=[1, 2])
    with pytest.raises(kk.ArgumentError, match="name must be a non-empty string"):
        kk.Tuned("", template, space)
    with pytest.raises(kk.ArgumentError, match=r"template must be a kk\.Template, got a str"):
        kk.Tuned("scale", "y[0] = 0.0f;", space)  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match=r"space must be a kk\.VariantSpace, got a dict"):
        kk.Tuned("scale", template, {"TIMES": [1, 2]})  # type: ignore[arg-type]
    with pytest.raises(kk.ArgumentError, match="reference must be a function"):
        kk.Tuned("scale", template, space, reference=7)  # type: ignore[arg-type]
    tuned = kk.Tuned("scale", template, space)
    for cache in (None, object()):
        with pytest.raises(kk.ArgumentError, match=r"kk\.ProgramCache"):
            tuned.select(cache, {"n": 7})  # type: ignore[arg-type]


def test_problems_to_check_end_with_the_problem_itself() -> None:
    space = kk.VariantSpace()
    assert kk.Tuned("saxpy", SAXPY, space).definition.problems_to_check({"n": 100}) == [{"n": 67}, {"n": 100}]
    assert kk.Tuned("saxpy", SAXPY, space).definition.problems_to_check({"n": 3}) == [{"n": 3}]
    assert kk.Tuned("saxpy", SAXPY, space, checks=[{"n": 5}, {"n": 9}]).definition.problems_to_check({"n": 9}) == [
        {"n": 5},
        {"n": 9},
    ]
    assert kk.Tuned("saxpy", SAXPY, space, checks=lambda p: [{"n": p["n"] + 1}]).definition.problems_to_check(
        {"n": 9}
    ) == [
        {"n": 10},
        {"n": 9},
    ]
    assert kk.Tuned("saxpy", SAXPY, space, checks=[]).definition.problems_to_check({"n": 9}) == [{"n": 9}]


def test_the_default_tolerance_depends_on_the_output_type() -> None:
    space = kk.VariantSpace()
    assert kk.Tuned("saxpy", SAXPY, space).definition.tolerance == 1e-4
    assert kk.Tuned("saxpy", SAXPY, space, tolerance=1e-6).definition.tolerance == 1e-6
    whole = kk.Template("y[0] = 0;", [kk.Buffer("y", "i4", "w"), kk.Scalar("n", "i4")])
    assert (
        kk.Tuned("whole", whole, space).definition.tolerance == 0
        and kk.Tuned("whole", whole, space).definition.dtype == "i4"
    )
    double = kk.Template("y[0] = 0;", [kk.Buffer("y", "f8", "w"), kk.Scalar("n", "i4")])
    assert kk.Tuned("double", double, space).definition.tolerance == 1e-10
