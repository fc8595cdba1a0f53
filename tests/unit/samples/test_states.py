"""The state samples judge their own results."""

from __future__ import annotations

from typing import Any

import pytest

from kernelkeep.samples.states import STATE_SAMPLES


@pytest.mark.parametrize("sample", STATE_SAMPLES, ids=lambda sample: sample.name)
def test_a_sample_detects_wrong_results(sample: Any) -> None:
    made = sample.program(sample.size)
    right = sample.reference(made, sample.iterations)
    assert set(right) == set(made.state)
    assert sample.largest_error(right, made, sample.iterations) == 0
    for key in right:
        wrong = {name: array.copy() for name, array in right.items()}
        wrong[key].flat[3 % wrong[key].size] += 1
        assert sample.largest_error(wrong, made, sample.iterations) >= 1 > sample.tolerance
        with pytest.raises(ValueError, match=key):
            sample.largest_error({**right, key: right[key].ravel()[:1]}, made, sample.iterations)
    if sample.iterations is not None:
        early = sample.reference(made, sample.iterations - 1)
        assert sample.largest_error(early, made, sample.iterations) > sample.tolerance, (
            "an iteration makes a difference"
        )
