"""Tuning results as a table: one line for each problem."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelkeep.observe.tuning_overview import known_problems, records_in
from kernelkeep.variants.records import Choice, Record, Records


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


def test_known_problems_has_one_line_for_each_problem() -> None:
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


def test_records_in_creates_no_folder(tmp_path: Path) -> None:
    with records_in(tmp_path / "none") as records:
        assert known_problems(records) == []
    assert not (tmp_path / "none").exists()
