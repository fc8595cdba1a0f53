"""Exchanging one argument of a prepared launch: by its place or its name, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ...devices.base import Device, Kernel
from ...devices.registry import open_device
from ...errors import ArgumentError, DeviceError
from .common import GRID, HOST, ITEMS, DispatchPart

__all__ = ["UpdateTests"]


class UpdateTests(DispatchPart):
    """The next call has the new value; a value that does not fit is refused, and the old one stays."""

    @pytest.mark.parametrize("which", [2, -2, "a", np.int64(2), np.uint8(2)], ids=lambda w: f"{type(w).__name__}-{w}")
    @pytest.mark.parametrize(
        "value",
        [3.5, 3, True, np.float32(3.5), np.array(3.5, "f4"), -1e-30, float("inf"), np.float64(3.5), np.int64(3)],
        ids=lambda v: f"{type(v).__name__}-{v}",
    )
    def test_update_of_a_scalar(self, device: Device, saxpy: Kernel, which: Any, value: Any) -> None:
        x, y = self.ones_and_zeros(device)
        prepared = saxpy.prepare(GRID, (x, y, 2.0, ITEMS))
        prepared()
        prepared.update(which, value)
        assert prepared.args[2] is value
        prepared()
        assert (y.numpy() == np.float32(2) + np.float32(value)).all()

    @pytest.mark.parametrize("which", [0, -4, "x"])
    def test_update_of_an_input(self, device: Device, saxpy: Kernel, which: int | str) -> None:
        x, y = self.ones_and_zeros(device)
        other = device.array(np.arange(ITEMS, dtype="f4"))
        prepared = saxpy.prepare(GRID, (x, y, 2.0, ITEMS))
        prepared()
        prepared.update(which, other)
        prepared()
        assert prepared.args[0] is other
        np.testing.assert_array_equal(y.numpy(), 2 + 2 * np.arange(ITEMS))

    def test_update_of_an_output(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        other = device.array(np.full(ITEMS, 10, "f4"))
        prepared = saxpy.prepare(GRID, (x, y, 2.0, ITEMS))
        for target in (y, other, y, other, other):
            prepared.update("y", target)
            prepared()
        assert (y.numpy() == 4).all()
        assert (other.numpy() == 16).all()

    def test_update_counts_from_the_next_call_on(self, device: Device, affine: Kernel) -> None:
        y, expected = device.array(HOST), HOST
        prepared = affine.prepare(GRID, (y, 1, 0, ITEMS))
        for turn in range(500):  # none of them waits for the launch before
            prepared.update(1, turn % 7)
            prepared.update("b", np.uint32(turn))
            prepared()
            expected = np.uint32(turn % 7) * expected + np.uint32(turn)
        np.testing.assert_array_equal(y.numpy(), expected)

    def test_a_bad_update_changes_nothing(self, device: Device, saxpy: Kernel) -> None:
        x, y = self.ones_and_zeros(device)
        closed = device.array(np.ones(ITEMS, "f4"))
        closed.close()
        prepared = saxpy.prepare(GRID, (x, y, 2.0, ITEMS))
        wrong: list[tuple[int | str, Any, type[Exception]]] = [
            (0, np.ones(ITEMS, "f4"), ArgumentError), ("x", 1.0, ArgumentError), (0, None, ArgumentError),
            (1, device.array(np.zeros(ITEMS, "i4")), ArgumentError), ("y", closed, DeviceError),
            (2, "2", ArgumentError), ("a", np.float64(1e39), ArgumentError), (2, 1e39, ArgumentError), (2, x, ArgumentError),
            (3, 1.5, ArgumentError), ("n", 2**31, ArgumentError), (-1, np.int64(2**31), ArgumentError),
        ]  # fmt: skip
        with open_device(device.spec) as elsewhere:
            wrong.append((0, elsewhere.array(np.ones(ITEMS, "f4")), ArgumentError))
            for count, (which, value, kind) in enumerate(wrong, 1):
                index = which if isinstance(which, int) else "xyan".index(which)
                with pytest.raises(kind, match=rf"argument {index % 4} \({'xyan'[index]}\) of saxpy"):
                    prepared.update(which, value)
                assert prepared.args == (x, y, 2.0, ITEMS)
                prepared()
                assert (y.numpy() == 2 * count).all()

    @pytest.mark.parametrize("which", ["no_such", "", 4, -5, 10**20, 2.0, None, (0,)])
    def test_update_rejects_an_argument_that_does_not_exist(self, device: Device, saxpy: Kernel, which: Any) -> None:
        x, y = self.ones_and_zeros(device)
        prepared = saxpy.prepare(GRID, (x, y, 2.0, ITEMS))
        with pytest.raises(ArgumentError, match="argument"):
            prepared.update(which, 1.0)
        prepared()
        assert (y.numpy() == 2).all()
