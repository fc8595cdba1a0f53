"""How far a result may be from the reference's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelkeep.variants.trial import largest_error


@pytest.mark.parametrize(
    ("result", "expected", "error", "place"),
    [
        ([1, 2, 4], [1, 2, 4], 0, None),
        ([1, 2, 5], [1, 2, 4], 0.25, 2),
        ([1e-9, 0, 0], [0, 0, 0], 1e-9, 0),
        ([1, np.nan, 1], [1, 1, 1], np.inf, 1),
        ([1, 1, 1], [1, np.nan, 1], np.inf, 1),
        ([1, np.nan, np.inf], [1, np.nan, np.inf], 0, None),
        ([1, 1, -np.inf], [1, 1, np.inf], np.inf, 2),
        ([1, 1, np.inf], [1, 1, 2], np.inf, 2),
    ],
)
def test_largest_error_finds_the_worst_element(result: Any, expected: Any, error: float, place: int | None) -> None:
    found, at = largest_error(np.array(result, "f4"), np.array(expected, "f8"))
    assert found == pytest.approx(error)
    assert place is None or at == (place,)


def test_largest_error_of_integers_is_zero_or_one() -> None:
    assert largest_error(np.array([1, 2], "i4"), np.array([1, 2]))[0] == 0
    assert largest_error(np.array([1, 3], "i4"), np.array([1, 2])) == (1.0, (1,))
    assert largest_error(np.zeros(0, "f4"), np.zeros(0)) == (0.0, ())


def test_words_of_which_floats_are_expected_are_bfloat16() -> None:
    one, two = 0x3F80, 0x4000
    found, at = largest_error(np.array([one, two, one], "u2"), np.array([1.0, 2.0, 1.5]))
    assert found == pytest.approx(0.25) and at == (2,)
