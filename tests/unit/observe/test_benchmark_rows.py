"""Rows of benchmarks: their ratios and goals, and that what was printed or written is read back."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kernelkeep.errors import ArgumentError
from kernelkeep.observe.benchmarks.machine import machine, measured_now, versions
from kernelkeep.observe.benchmarks.row import Row, heading, line, make_row, number, rows_in


def test_ratio_and_goal_follow_the_direction() -> None:
    slower = make_row("launch", 3.0, "µs", peer="loop", its=2.0, goal="≤ 1.0")
    assert (slower.ratio, slower.met) == (1.5, False)
    faster = make_row("gemm", 50.0, "µs", peer="cuBLAS", its=55.0, goal="≥ 1.0")
    assert (faster.ratio, faster.met) == (1.1, True)
    rate = make_row("checkpoint", 0.9, "GB/s", peer="dd", its=1.0, goal="≥ 0.9")
    assert (rate.ratio, rate.met) == (0.9, True)


def test_goal_is_met_as_the_ratio_is_shown() -> None:
    assert make_row("launch", 1.004, "µs", peer="loop", its=1.0, goal="≤ 1.0").met
    assert not make_row("launch", 1.006, "µs", peer="loop", its=1.0, goal="≤ 1.0").met


def test_row_without_a_peer_has_a_goal_for_its_own_figure() -> None:
    row = make_row("switching programs", 1.1, "µs", goal="≤ 1.0")
    assert (row.ratio, row.met) == (None, False)
    assert make_row("import", 0.5, "ms").met is None


def test_a_measured_ratio_is_kept() -> None:
    assert make_row("stream", 2.0, "ms", peer="loop", its=4.0, goal="≥ 6.5", ratio=1.9).ratio == 1.9


@pytest.mark.parametrize(
    "wrong", [{"goal": "below 1"}, {"peer": "loop"}, {"its": 2.0}, {"peer": "a | b", "its": 2.0, "goal": "≤ 1"}]
)
def test_wrong_rows_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ArgumentError):
        make_row("launch", 1.0, "µs", **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.0123, "0.0123"), (0.456, "0.46"), (3.456, "3.46"), (34.56, "34.6"), (3456.7, "3,457")],
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert number(value) == shown


def rows() -> list[Row]:
    where: dict[str, Any] = {
        "machine": machine(),
        "versions": versions(),
        "measured": measured_now(),
        "command": "python b.py launch",
    }
    return [
        make_row("prepared launch", 3.55, "µs", peer="C++ loop", its=3.55, goal="≤ 1.0", device="gpu:0", **where),
        make_row("stream of batches: 8 MiB", 1234.0, "ms", device="gpu:0", note="the bus: 55 GB/s", **where),
        make_row("gemm 64", 2.0, "µs", peer="cuBLAS", its=3.0, goal="≥ 1.0", ratio=1.45, device="gpu:0", **where),
    ]


def test_what_was_printed_is_read_back() -> None:
    made = rows()
    text = "\n".join(
        ["a warning", heading(made[0]), line(made[0]), "  gemm: 2.0 µs", *map(line, made[1:]), "| the | end |"]
    )
    assert list(rows_in(text)) == made


def test_json_lines_are_read_back_and_a_cut_one_is_left_out() -> None:
    made = rows()
    text = "\n".join(msgspec.json.encode(row).decode() for row in made)
    assert list(rows_in(text)) == made
    assert list(rows_in(text[:-5])) == made[:-1]
