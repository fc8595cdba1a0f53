"""What a view is told and tells: sharing with other libraries, overlaps, and where it begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.devices.views import find_part, find_shape


class Observer:
    def __init__(self) -> None:
        self.told: list[str] = []

    def revoke(self, reason: str) -> None:
        self.told.append("closed")

    def sharing_changed(self) -> None:
        self.told.append("shared")


@pytest.fixture
def device() -> Iterator[kk.Device]:
    with kk.open_device("reference") as opened:
        yield opened


@pytest.mark.parametrize("which", [0, 1, 2], ids=["the array", "a view", "a view of a view"])
def test_all_views_of_memory_learn_that_it_is_shared(device: kk.Device, which: int) -> None:
    whole = device.zeros((4, 4))
    family = [whole, whole[1:3], whole[1:3][1]]
    observers = [Observer() for _ in family]
    for array, observer in zip(family, observers, strict=True):
        array.add_observer(observer)
    family[which].share(peers := object())
    assert all(array.peers is peers and array.ready is None for array in family)
    assert [observer.told for observer in observers] == [["shared"]] * 3
    assert whole[0].peers is peers  # a view that is made later
    family[2].close()
    assert [observer.told for observer in observers] == [["shared"], ["shared"], ["shared", "closed"]]


def test_overlaps(device: kk.Device) -> None:
    whole, other = device.zeros(16), device.zeros(16)
    assert whole.overlaps(whole) and whole.overlaps(whole[3:5]) and whole[:4].overlaps(whole[3:5])
    assert not whole[:4].overlaps(whole[4:]) and not whole.overlaps(other) and not whole[:4].overlaps(other[:4])
    assert whole.reshape(4, 4)[1].overlaps(whole[7:8])
    assert (whole[2:][3:].offset, whole.offset) == (20, 0)


@pytest.mark.parametrize(
    "key",
    [0, -1, slice(None), slice(1, 3), (1,), (1, 2), (1, slice(1, 2)), (1, 2, slice(1, 4)), (slice(1, 2), slice(1, 3)), ...,
     (..., slice(None)), (1, ...), slice(5, 2), (slice(0, 0), 1), (0, 0, 0), slice(-2, None), slice(0, 100)],
)  # fmt: skip
def test_parts_are_those_of_numpy(key: Any) -> None:
    host = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    begin, shape = find_part(host.shape, key)
    expected = host[key]
    assert shape == np.shape(expected)
    if np.size(expected):
        assert begin == np.ravel(expected)[0]


@pytest.mark.parametrize(
    "key", [(slice(None), 1), (slice(0, 2), slice(0, 2)), (0, slice(0, 2), slice(0, 2)), (slice(0, 2), 0, 0)]
)
def test_what_numpy_calls_not_contiguous_is_refused(key: Any) -> None:
    assert not np.zeros((3, 4, 5))[key].flags.c_contiguous
    with pytest.raises(kk.ArgumentError, match="contiguous"):
        find_part((3, 4, 5), key)


def test_shapes_of_no_elements() -> None:
    assert find_shape(0, (0, 3)) == (0, 3)
    assert find_shape(1, ()) == ()
    with pytest.raises(kk.ArgumentError, match="0 elements"):
        find_shape(0, (0, -1))
