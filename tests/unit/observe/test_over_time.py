"""Counts over time: programs are whole numbers, and nothing is lost."""

from __future__ import annotations

from typing import Any

from kernelkeep.observe.report.over_time import over_time


def _columns(record: dict[str, Any], name: str) -> list[float]:
    return [one[name] for one in over_time([record], now=1_000_000.0)["intervals"] if one[name]]


def test_what_a_process_did_is_in_the_column_in_which_it_was_noted() -> None:
    record = {"kind": "counts", "since": 999_000.0, "at": 999_015.0, "counts": {"misses": 15, "compile_seconds": 3.0}}
    assert _columns(record, "misses") == [15] and _columns(record, "compile_seconds") == [3.0]


def test_a_sum_of_many_processes_is_spread_in_whole_numbers() -> None:
    record = {"kind": "counts", "since": 999_000.0, "at": 999_055.0, "counts": {"misses": 7}, "processes": 3}
    columns = _columns(record, "misses")
    assert len(columns) > 1 and sum(columns) == 7 and all(one == int(one) for one in columns)
