"""Room for several resident grids, reckoned without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.devices.cuda.resident_blocks import CudaResidentBlocks
from kernelkeep.devices.cuda.resident_room import Room, Share, count_room

A_BLOCK_EACH = Share(132, 8, 132)  # as a grid is by default


@pytest.mark.parametrize(
    ("each", "processors", "held", "room"),
    [
        (8, 132, [], 1056),
        (8, 132, [A_BLOCK_EACH], 7 * 132),
        (8, 132, [A_BLOCK_EACH] * 8, 0),
        (8, 132, [Share(133, 8, 132)], 6 * 132),  # one processor has two, and any may be that one
        (1, 132, [A_BLOCK_EACH], 0),
        (1, 132, [Share(100, 8, 132)], 32),
        (4, 132, [Share(64, 8, 8)], 124 * 4),  # all of 8 processors
        (4, 8, [Share(64, 8, 8)], 0),  # perhaps the same 8
        (4, 8, [A_BLOCK_EACH], 3 * 8),
        (3, 2, [Share(2, 3, 2), Share(2, 3, 2)], 2),
        (2, 2, [Share(8, 2, 2)], 0),
    ],
)
def test_what_fits_beside_other_grids(each: int, processors: int, held: list[Share], room: int) -> None:
    assert count_room(each, processors, held) == room


def test_a_grid_that_does_not_fit_is_refused_with_the_numbers() -> None:
    room = Room()
    room.take("first", Share(132, 1, 132), "cuda:0")
    with pytest.raises(
        kk.ArgumentError, match=r"at most 0 beside another resident grid with 132 blocks .* got 8 .*blocks= or sms="
    ):
        room.take("second", Share(8, 4, 132), "cuda:0")
    room.give_back("first")
    room.take("second", Share(8, 4, 132), "cuda:0")


def test_a_grid_is_launched_again_beside_those_that_came_after_it() -> None:
    room = Room()
    first = Share(66, 1, 132)
    room.take("first", first, "cuda:0")
    room.take("second", A_BLOCK_EACH, "cuda:0")
    room.take("first", first, "cuda:0")
    room.give_back("first")
    with pytest.raises(kk.ArgumentError, match="at most 0"):
        room.take("first", first, "cuda:0")  # now it is the one that comes after


@pytest.mark.parametrize("is_registered", [False, True])
def test_a_start_that_fails_gives_the_room_back_unless_the_grid_may_be_launched_later(is_registered: bool) -> None:
    grid: Any = object()

    def add(_: Any) -> None:
        raise kk.DeviceError("not now")

    room = Room()
    residents = SimpleNamespace(room=room, add=add, grids=[grid] if is_registered else [])
    place = CudaResidentBlocks.__new__(CudaResidentBlocks)
    place._device = SimpleNamespace(residents=residents)  # type: ignore[assignment]
    room.take(place, A_BLOCK_EACH, "cuda:0")
    with pytest.raises(kk.DeviceError, match="not now"):
        place.add(grid)
    assert list(room._shares) == ([place] if is_registered else [])
