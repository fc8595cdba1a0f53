"""Every test of a lane runs with the type in C, where it was built, and with its twin in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelkeep.resident.future import LaneFuture
from kernelkeep.resident.lane import open_lane
from kernelkeep.resident.protocol import Layout, RingView
from kernelkeep.resident.python_lane import PythonFuture, PythonLane


class PythonTaskFuture(LaneFuture, PythonFuture):
    __slots__ = ()


@pytest.fixture(params=["c", "python"])
def twins(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """(type of lanes, type of futures)."""
    if request.param == "python":
        return PythonLane, PythonTaskFuture
    try:
        from kernelkeep._ring import Future, Lane
    except ImportError as error:
        pytest.skip(f"kernelkeep._ring was not built here, and its twin in plain Python is used ({error})")

    class NativeTaskFuture(LaneFuture, Future):
        __slots__ = ()

    return Lane, NativeTaskFuture


@pytest.fixture
def make_ring(twins: tuple[Any, Any]) -> Callable[..., tuple[RingView, list[Any]]]:
    """(view, lanes) of a new ring; `begin`: how many tasks each lane has done before."""

    def make(
        lanes: int = 1, capacity: int = 8, slot: int = 64, begin: int = 0, **more: Any
    ) -> tuple[RingView, list[Any]]:
        layout = Layout(lanes, capacity, slot)
        buffer = np.zeros(layout.total_bytes // 8, np.uint64)
        ring = layout.initialize(buffer)
        ring.head[:] = ring.done[:] = begin
        opened = [open_lane(layout, lane, buffer, twins[1], emulated=True, **more) for lane in range(lanes)]
        assert all(type(lane) is twins[0] for lane in opened)
        return ring, opened

    return make
