"""Cases: the numbers a kernel is tried with, the reference's answer, and problems of ragged sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelkeep as kk
from kernelkeep.variants.case import Case, make_case, ragged_problem

SAXPY = kk.Template(
    "y[0] = 0.0f;",
    [kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "rw"), kk.Scalar("a", "f4"), kk.Scalar("n", "i4")],
    scalars={"a": 0.1},
)
TWO = kk.Template(
    "y[0] = 0.0f;",
    [kk.Buffer("x", "i4", "r"), kk.Buffer("y", "f4", "w"), kk.Buffer("z", "i4", "w")],
    arrays={"x": ("m", "n"), "y": "m", "z": (1,)},
)


def case(template: kk.Template, problem: Any, reference: Any, **settings: Any) -> Case:
    return make_case(template, template.params("opencl"), problem, reference, **settings)


def saxpy(x: Any, y: Any, a: Any) -> Any:
    return a * x + y


# --- numbers and answers


def test_the_reference_computes_in_double_precision_and_the_kernel_is_given_single() -> None:
    made = case(SAXPY, {"n": 100}, saxpy)
    assert made.shapes == {"x": (100,), "y": (100,)}
    assert made.inputs["x"].dtype == made.inputs["y"].dtype == np.float32
    assert made.scalars == {"a": np.float32(0.1), "n": 100} and type(made.scalars["n"]) is np.int32
    assert made.expected["y"].dtype == np.float64
    x, y = made.inputs["x"].astype("f8"), made.inputs["y"].astype("f8")
    np.testing.assert_array_equal(made.expected["y"], np.float32(0.1) * x + y)


def test_the_same_numbers_each_time_and_others_for_another_seed() -> None:
    one, again, other = (case(SAXPY, {"n": 9}, saxpy, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.inputs["x"], again.inputs["x"])
    assert (one.inputs["x"] != other.inputs["x"]).all()


def test_inputs_replaces_the_random_numbers() -> None:
    def inputs(values: Any, rng: np.random.Generator) -> dict[str, Any]:
        return {"x": np.arange(values["n"]), "a": 3}

    made = case(SAXPY, {"n": 4}, saxpy, inputs=inputs)
    np.testing.assert_array_equal(made.inputs["x"], np.arange(4, dtype="f4"))
    assert made.inputs["x"].dtype == np.float32 and made.scalars["a"] == 3


@pytest.mark.parametrize("form", [dict, tuple, list])
def test_a_reference_returns_several_outputs_by_name_or_in_order(form: Any) -> None:
    def reference(x: Any) -> Any:
        parts = {"y": x.sum(1), "z": x.max()}
        return parts if form is dict else form(parts.values())

    made = case(TWO, {"m": 3, "n": 5}, reference)
    assert made.inputs["x"].shape == (3, 5) and made.inputs["x"].dtype == np.int32
    assert made.expected["y"].shape == (3,) and made.expected["z"].shape == (1,)


def test_a_reference_that_changes_its_arguments_changes_nothing() -> None:
    def reference(x: Any, y: Any, n: int) -> Any:
        x[:] = 0
        y += 1
        return y

    np.testing.assert_array_equal(
        case(SAXPY, {"n": 4}, reference).inputs["x"], case(SAXPY, {"n": 4}, saxpy).inputs["x"]
    )


def test_a_reference_with_keyword_arguments_gets_every_value() -> None:
    seen: dict[str, Any] = {}

    def reference(**everything: Any) -> Any:
        seen.update(everything)
        return everything["y"]

    template = kk.Template("y[0] = 0.0f;", [kk.Buffer("y", "f4"), kk.Scalar("n", "i4")], arrays={"y": "n"})
    case(template, {"n": 4, "k": 7}, reference)
    assert seen.keys() == {"y", "n", "k"}


def test_wrong_references_and_inputs_are_argument_errors() -> None:
    with pytest.raises(kk.ArgumentError, match="asks for z; it may have: n, a, x, y"):
        case(SAXPY, {"n": 4}, lambda x, z: x)
    with pytest.raises(kk.ArgumentError, match="must return every output of the kernel: y, z"):
        case(TWO, {"m": 3, "n": 5}, lambda x: x.sum(1))
    with pytest.raises(kk.ArgumentError, match="must return every output of the kernel: y"):
        case(SAXPY, {"n": 4}, lambda x: None)
    with pytest.raises(kk.ArgumentError, match=r"returned y with the shape \(3,\); the kernel has \(4,\)"):
        case(SAXPY, {"n": 4}, lambda x: x[:3])
    with pytest.raises(kk.ArgumentError, match="positional only"):
        case(SAXPY, {"n": 4}, eval("lambda x, /: x"))
    with pytest.raises(kk.ArgumentError, match="inputs returned z, which the kernel does not take"):
        case(SAXPY, {"n": 4}, saxpy, inputs=lambda values, rng: {"z": 1})
    with pytest.raises(kk.ArgumentError, match=r"inputs returned x with the shape \(3,\)"):
        case(SAXPY, {"n": 4}, saxpy, inputs=lambda values, rng: {"x": np.zeros(3)})
    nothing = kk.Template("int i;", [kk.Buffer("x", "f4", "r"), kk.Scalar("n", "i4")])
    with pytest.raises(kk.ArgumentError, match="writes nothing"):
        case(nothing, {"n": 4}, lambda x: x)


def test_a_saved_case_is_loaded_unchanged(tmp_path: Path) -> None:
    made = case(TWO, {"m": 3, "n": 5}, lambda x: (x.sum(1), x.max()))
    made.save(tmp_path / "case")
    loaded = Case.load(tmp_path / "case", made.shapes, made.scalars)
    assert loaded.shapes == made.shapes
    for kind in ("inputs", "expected"):
        before, after = getattr(made, kind), getattr(loaded, kind)
        assert before.keys() == after.keys()
        for name in before:
            np.testing.assert_array_equal(before[name], after[name])


# --- ragged sizes

MATRIX = kk.Template(
    "c[0] = 0.0f;",
    [kk.Buffer("a", "f4", "r"), kk.Buffer("c", "f4", "w")],
    arrays={"a": ("m", "k"), "c": ("m", "n")},
    constants=["FOURS"],
    derived=lambda p: {"FOURS": p["k"] % 4 == 0},
)


def test_ragged_sizes_are_not_divided_by_any_tile() -> None:
    small = ragged_problem(MATRIX, {"m": 1024, "n": 512, "k": 255})
    assert small == {"m": 67, "n": 33, "k": 45}
    # What is compiled in stays: with k no multiple of 4 it would be another program.
    assert ragged_problem(MATRIX, {"m": 1024, "n": 512, "k": 256}) == {"m": 67, "n": 33, "k": 44}


@settings(deadline=None)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300))
def test_a_ragged_problem_is_never_larger_and_the_same_program(m: int, n: int, k: int) -> None:
    problem = {"m": m, "n": n, "k": k}
    small = ragged_problem(MATRIX, problem)
    assert small.keys() == problem.keys()
    assert all(1 <= small[name] <= size for name, size in problem.items())
    assert all(small[name] < size for name, size in problem.items() if size > 3 and name != "k")
    assert (small["k"] % 4 == 0) == (k % 4 == 0)


def test_a_ragged_problem_keeps_strings_flags_and_fractions() -> None:
    problem = {"kind": "wide", "on": True, "scale": 100.5, "n": 100}
    assert ragged_problem(SAXPY, problem) == {**problem, "n": 17}


def test_no_size_of_a_ragged_problem_becomes_zero() -> None:
    """An image of 8 and a filter of 8: one pixel less, and nothing would be left."""
    template = kk.Template(
        "y[0] = 0.0f;",
        [kk.Buffer("x", "f4", "r"), kk.Buffer("y", "f4", "w")],
        arrays={"x": "h", "y": "oh"},
        constants=["r"],
        derived=lambda p: {"oh": p["h"] - p["r"] + 1},
    )
    assert ragged_problem(template, {"h": 8, "r": 8}) == {"h": 8, "r": 8}
    assert ragged_problem(template, {"h": 9, "r": 8}) == {"h": 8, "r": 8}
    assert ragged_problem(template, {"h": 100, "r": 80}) == {"h": 100, "r": 80}
