"""Numbers for people."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from kernelkeep.html import numbers

NO_NUMBERS: tuple[object, ...] = (None, "12", math.nan, math.inf, -math.inf, True, 10**400, [])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 ms"), (0.00042, "420 ns"), (0.42, "420 µs"), (1, "1.00 ms"), (12.34, "12.3 ms"), (999.4, "999 ms"),
        (999.9, "1.00 s"), (4_560, "4.56 s"), (59_990, "1 min"), (200_000, "3 min 20 s"), (3_599_900, "1 h"),
        (18_180_000, "5 h 3 min"), (86_399_999, "1 d"), (1_051_200_000, "12 d 4 h"), (-5, "-5.00 ms"),
    ],
)  # fmt: skip
def test_durations_have_the_unit_that_suits_them(value: float, shown: str) -> None:
    assert numbers.milliseconds(value) == shown
    assert numbers.seconds(value / 1e3) == shown


@pytest.mark.parametrize(
    ("write", "value", "shown"),
    [
        (numbers.count, 1234, "1,234"), (numbers.count, 0.5, "0.500"), (numbers.count, 1e20, "1e+20"),
        (numbers.size, 512, "512 B"), (numbers.size, 1536, "1.5 KiB"), (numbers.size, 3 << 30, "3.0 GiB"),
        (numbers.size, 5 << 50, "5,120.0 TiB"),
        (numbers.share, 0, "0%"), (numbers.share, 1, "100%"), (numbers.share, 0.973, "97%"),
        (numbers.share, 0.9995, ">99.9%"), (numbers.share, 0.0005, "<0.1%"), (numbers.share, 0.995, "99.5%"),
        (numbers.ago, 5, "just now"), (numbers.ago, 300, "5 min ago"), (numbers.ago, 90_000, "1 day ago"),
        (numbers.ago, 1e9, "31 years ago"), (numbers.ago, -1000, "–"),
    ],
)  # fmt: skip
def test_numbers_are_short(write: Callable[[object], str], value: float, shown: str) -> None:
    assert write(value) == shown


@pytest.mark.parametrize(
    "write", [numbers.count, numbers.milliseconds, numbers.seconds, numbers.size, numbers.share, numbers.ago]
)
@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: str(type(value).__name__))
def test_what_is_no_number_is_a_dash(write: Callable[[object], str], value: object) -> None:
    assert write(value) == "–"


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("50.0 s", "50 s"),
        ("2.50 ms", "2.5 ms"),
        ("0 ms", "0"),
        ("1,000", "1,000"),
        ("1.00", "1"),
        ("–", "–"),
        ("1e+20", "1e+20"),
    ],
)
def test_labels_of_an_axis_are_shorter_still(text: str, label: str) -> None:
    assert numbers.short(text) == label
