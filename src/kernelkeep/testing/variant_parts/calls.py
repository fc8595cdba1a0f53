"""Running a tuned kernel: any array in, device arrays out, and one sentence where the arguments do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...devices.array import Array
from ...devices.base import Device
from ...devices.registry import open_device
from ...errors import ArgumentError
from ...variants.space import VariantSpace
from ..device_parts.common import together
from .common import VariantPart, twice

__all__ = ["CallTests"]

_ITEMS = 1001
_PROBLEM = {"n": _ITEMS}


class CallTests(VariantPart):
    """`run` with a kernel that has no records."""

    def test_run_takes_arrays_of_any_kind(self, device: Device, programs: ProgramCache) -> None:
        tuned, host = twice("calls", [1]), np.arange(_ITEMS, dtype="f4")
        for x in (host, np.arange(2 * _ITEMS, dtype="f4")[::2] / 2, device.array(host), host.reshape(7, -1)):
            y = tuned.run(programs, _PROBLEM, x=x)
            assert isinstance(y, Array) and y.shape == (_ITEMS,)
            np.testing.assert_array_equal(y.numpy(), 2 * host)
        out = device.empty(_ITEMS, "f4")
        assert tuned.run(programs, _PROBLEM, x=host, y=out) is out
        np.testing.assert_array_equal(out.numpy(), 2 * host)
        # A scalar that the problem has may be given all the same.
        half = tuned.run(programs, _PROBLEM, x=host, y=device.array(host), n=500)
        assert isinstance(half, Array)
        np.testing.assert_array_equal(half.numpy(), np.where(np.arange(_ITEMS) < 500, 2 * host, host))

    def test_run_takes_numpy_numbers_in_a_problem(self, programs: ProgramCache) -> None:
        tuned, host = twice("calls", [1]), np.arange(_ITEMS, dtype="f4")
        y = tuned.run(programs, {"n": np.int64(_ITEMS)}, x=host)
        assert isinstance(y, Array)
        np.testing.assert_array_equal(y.numpy(), 2 * host)

    def test_run_with_one_element_and_with_none(self, programs: ProgramCache) -> None:
        for items in (1, 0):
            self.check_run(twice("calls", [1]), programs, items)

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({}, "calls needs x"),
            ({"x": None}, "calls needs x"),
            ({"x": np.zeros(_ITEMS, "f4"), "z": 1}, "calls does not take z"),
            ({"x": np.zeros(_ITEMS, "f4"), "z": None}, "calls does not take z"),
            ({"x": np.zeros(7, "f4")}, r"x must have the shape \(1001,\) for this problem, got \(7,\)"),
            ({"x": np.zeros(_ITEMS, "f8")}, r"argument 0 \(x\).*float32.*float64"),
            ({"x": np.zeros(_ITEMS, "f4"), "y": np.zeros(_ITEMS, "i4")}, r"argument 1 \(y\)"),
            ({"x": np.zeros(_ITEMS, "f4"), "n": 0.5}, r"argument 2 \(n\)"),
            ({"x": object()}, "cannot make an array|made of numbers"),
        ],
        ids="nothing none unknown unknown-none shape dtype output scalar object".split(),
    )
    def test_run_rejects_arguments_that_do_not_fit(
        self, programs: ProgramCache, given: dict[str, Any], said: str
    ) -> None:
        tuned = twice("calls", [1])
        with pytest.raises(ArgumentError, match=said) as caught:
            tuned.run(programs, _PROBLEM, **given)
        assert "\n" not in str(caught.value)

    def test_run_rejects_problems_that_do_not_fit(self, device: Device, programs: ProgramCache) -> None:
        tuned, x = twice("calls", [1]), np.zeros(_ITEMS, "f4")
        for problem, said in (
            ({}, "the shape of buffer x is not known"),
            ({"n": "many"}, "the shape of buffer x is not known"),
            ({"n": -1}, "a size is not negative"),
            ({"n": None}, "a problem's values must be numbers or strings"),
            (None, "problem must be a dict of named sizes"),
        ):
            with pytest.raises(ArgumentError, match=said):
                tuned.run(programs, problem, x=x)  # type: ignore[arg-type]
        clash = twice("clash", None, space=VariantSpace(STEPS=[1], n=[7]))
        with pytest.raises(ArgumentError, match="n of the problem is also a parameter of the space"):
            clash.run(programs, _PROBLEM, x=x)
        with open_device(device.spec) as other, pytest.raises(ArgumentError, match=r"argument 0 \(x\)"):
            tuned.run(programs, _PROBLEM, x=other.array(x))

    @pytest.mark.parametrize("wrong", [-0.5, 2, "much", float("nan")])
    def test_run_rejects_an_explore_that_is_not_a_share(self, programs: ProgramCache, wrong: Any) -> None:
        with pytest.raises(ArgumentError, match="explore must be a share of the time"):
            twice("calls", [1]).run(programs, _PROBLEM, explore=wrong, x=np.zeros(_ITEMS, "f4"))

    def test_many_threads_run_one_kernel(self, programs: ProgramCache) -> None:
        tuned = twice("threads", [1, 2])

        def work(number: int) -> None:
            for items in (number + 1, 500):
                self.check_run(tuned, programs, items)

        together(work, 8)
