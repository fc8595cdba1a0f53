"""The tuned kernels there are, problems as they are typed, and what is known as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.kernels.catalogue import SHIPPED, find_kernel, parse_problem
from kernelkeep.observe.tuning_overview import known_problems, records_in
from kernelkeep.variants.records import Choice, Record, Records


def test_a_problem_as_it_is_typed() -> None:
    assert parse_problem("m=256, n=-3,x=0.5,mode=fast") == {"m": 256, "n": -3, "x": 0.5, "mode": "fast"}
    for text in ("", "m", "m=", "=3", "m=1,,n=2", "m=1,m=2"):
        with pytest.raises(kk.ArgumentError):
            parse_problem(text)


def test_common_problems_are_whole() -> None:
    for listed in SHIPPED.values():
        assert find_kernel(listed.name) is listed and listed.problems
        assert all(listed.complete(problem) == problem for problem in listed.problems)


def test_what_may_be_left_out_of_a_convolution() -> None:
    whole = SHIPPED["conv2d"].complete({"c": 3, "h": 8, "w": 9, "k": 4, "r": 5, "s": 3, "stride": 2})
    assert whole == {
        "n": 1, "c": 3, "h": 8, "w": 9, "k": 4, "r": 5, "s": 3, "stride_y": 2, "stride_x": 2, "pad_y": 2, "pad_x": 1
    }  # fmt: skip
    assert SHIPPED["conv2d"].complete({**whole, "pad_x": 0})["pad_x"] == 0
    with pytest.raises(kk.ArgumentError, match="needs k, r"):
        SHIPPED["conv2d"].complete({"c": 3, "h": 8, "w": 9})


def test_a_kernel_from_a_file_finds_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside_it.py").write_text("NAME = 'own'\n")
    (tmp_path / "own.py").write_text(
        "import kernelkeep as kk\n"
        "from beside_it import NAME\n"
        "own = kk.Tuned(NAME, kk.Template('x[0] = 1.0f;', [kk.Buffer('x', 'f4')]), kk.VariantSpace(A=[1]))\n"
        "again = own\n"
    )
    assert find_kernel(f"{tmp_path / 'own.py'}:own").name == "own"
    assert find_kernel(str(tmp_path / "own.py")).name == "own"


def record(variant: dict[str, Any], samples_ms: list[float], failure: str = "", n: int = 1) -> Record:
    return Record(
        tuned="own",
        source=f"{variant}{n}",
        space="",
        device="digest",
        device_name="a device",
        architecture="",
        problem={"n": n},
        variant=variant,
        samples_ms=samples_ms,
        failure=failure,
    )


def test_what_is_known_a_line_for_each_problem() -> None:
    with Records(None) as records:
        records.add_all([record({"A": 1}, [3.0]), record({"A": 2}, [2.0, 2.0]), record({"A": 3}, [], "wrong")])
        records.add_all([record({"A": 1}, [], "crashed", n=2)])
        one, two = known_problems(records, "own", "digest")
        assert (one.variant, one.milliseconds, one.samples, one.measured) == ({"A": 2}, 2.0, 2, 2)
        assert one.failures == {"wrong": 1} and not one.pinned
        assert (two.variant, two.milliseconds, two.failures) == (None, None, {"crashed": 1})
        records.choose(Choice(tuned="own", device="digest", problem={"n": 1}, variant={"A": 1}, pinned=True))
        one, _ = known_problems(records)
        assert (one.variant, one.milliseconds, one.pinned) == ({"A": 1}, 3.0, True)
        assert known_problems(records, "other") == [] and known_problems(records, device="other") == []


def test_forgetting_one_problem_leaves_the_others_and_may_leave_the_choice() -> None:
    with Records(None) as records:
        records.add_all([record({"A": 1}, [3.0]), record({"A": 1}, [3.0], n=2)])
        records.choose(Choice(tuned="own", device="digest", problem={"n": 1}, variant={"A": 1}))
        assert records.forget("own", "digest", {"n": 1}, choices=False) == 1
        assert [one.problem for one in known_problems(records)] == [{"n": 2}]
        assert records.choice("own", "digest", {"n": 1}) is not None
        assert records.forget() == 1 and records.choice("own", "digest", {"n": 1}) is None


def test_looking_at_no_records_makes_no_folder(tmp_path: Path) -> None:
    with records_in(tmp_path / "none") as records:
        assert known_problems(records) == []
    assert not (tmp_path / "none").exists()
