"""`submit` in C: what it does itself, and what it leaves to the method in Python."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kernelkeep.resident.future import LaneFuture
from kernelkeep.resident.lane import future_type, open_lane
from kernelkeep.resident.protocol import Layout, RingView, pack_plan
from kernelkeep.resident.python_lane import PythonFuture
from kernelkeep.resident.submitter import PythonSubmitter, submitter_type

MakeSubmitter = Callable[..., tuple[Any, RingView]]
PLANS = {"tiny": pack_plan(3, "", ["i", "f"]), "none": pack_plan(4, "", [])}


class Slow:
    """What a submitter asks of its subclass; remembers the calls."""

    def __init__(self, lanes: tuple[Any, ...]) -> None:
        self.slow: list[tuple[Any, ...]] = []
        self.asked = self.chosen = 0
        self.lanes = lanes

    def _submit_slowly(self, name: str, *args: Any) -> Any:
        self.slow.append((name, *args))
        return "slow"

    def _lane_of_thread(self) -> Any:
        self.asked += 1
        return self.lanes[self.chosen]


@pytest.fixture
def make_submitter() -> MakeSubmitter:
    """A submitter in C and its ring."""
    ring_in_c = pytest.importorskip("kernelkeep._ring", reason="kernelkeep._ring was not built here")

    class NativeTaskFuture(LaneFuture, ring_in_c.Future):  # type: ignore[misc, name-defined]
        __slots__ = ()

    class Made(Slow, ring_in_c.Submitter):  # type: ignore[misc, name-defined]
        pass

    def make(lanes: int = 1, plans: dict[str, bytes] = PLANS) -> tuple[Any, RingView]:
        layout = Layout(lanes, 8, 64)
        buffer = np.zeros(layout.total_bytes // 8, np.uint64)
        ring = layout.initialize(buffer)
        made = Made(tuple(open_lane(layout, lane, buffer, NativeTaskFuture, emulated=True) for lane in range(lanes)))
        made.set_plans(plans, made.lanes)
        return made, ring

    return make


def test_the_type_fits_that_of_the_futures() -> None:
    assert (submitter_type() is PythonSubmitter) == issubclass(future_type(), PythonFuture)


def test_a_task_is_submitted_without_python(make_submitter: MakeSubmitter) -> None:
    submitter, ring = make_submitter()
    for number in range(3):
        future = submitter.submit("tiny", number, 1.5)
        assert (future.sequence, future.lane) == (number, submitter.lanes[0])
        record = bytes([3, 0, 0, 0, number + 1, 0, 0, 0, number, 0, 0, 0, 0, 0, 192, 63])  # number, tag, arguments
        assert ring.slots[0, number, :16].tobytes() == record
    submitter.submit("none")
    assert int(ring.head[0]) == 4
    assert (submitter.slow, submitter.asked) == ([], 1)


@pytest.mark.parametrize(
    "call",
    [("other", 1), ("tiny",), ("tiny", 1, 2.0, 3), ("tiny", "a", 1.0), ("tiny", 1 << 40, 1.0), ([], 1), (None,)],
    ids=str,
)
def test_what_is_unusual_comes_to_the_method_in_python(make_submitter: MakeSubmitter, call: Any) -> None:
    submitter, ring = make_submitter()
    assert submitter.submit(*call) == "slow"
    assert submitter.slow == [call]
    assert int(ring.head[0]) == 0


def test_a_full_ring_comes_to_the_method_in_python(make_submitter: MakeSubmitter) -> None:
    submitter, ring = make_submitter()
    for _ in range(8):
        submitter.submit("none")
    assert submitter.submit("none") == "slow"
    ring.done[0] = 1
    assert submitter.submit("none").sequence == 8


def test_an_error_of_an_argument_is_raised(make_submitter: MakeSubmitter) -> None:
    class Wrong:
        def __index__(self) -> int:
            raise ZeroDivisionError("from an argument")

    submitter, ring = make_submitter()
    with pytest.raises(ZeroDivisionError, match="from an argument"):
        submitter.submit("tiny", Wrong(), 1.0)
    assert (submitter.slow, int(ring.head[0])) == ([], 0)
    with pytest.raises(TypeError, match="submit takes the name of a task"):
        submitter.submit()


def test_plans_may_change_while_an_argument_is_converted(make_submitter: MakeSubmitter) -> None:
    submitter, ring = make_submitter(plans={"tiny": pack_plan(3, "", ["i", "f"])})  # nobody else holds the plan

    class Changes:
        def __index__(self) -> int:
            submitter.set_plans({}, submitter.lanes)
            return 7

    assert submitter.submit("tiny", Changes(), 1.0).sequence == 0
    assert int(ring.head[0]) == 1
    assert submitter.submit("tiny", 1, 1.0) == "slow"


def test_lanes_do_not_change(make_submitter: MakeSubmitter) -> None:
    submitter, _ = make_submitter()
    with pytest.raises(ValueError, match="lanes must be the same as before"):
        submitter.set_plans(PLANS, submitter.lanes * 2)
    with pytest.raises(TypeError, match="each of the lanes must be a Lane"):
        submitter.set_plans(PLANS, ("lane",))
    with pytest.raises(TypeError, match="set_plans takes a dictionary of plans"):
        submitter.set_plans([], ())


def test_each_thread_has_the_lane_it_was_given(make_submitter: MakeSubmitter) -> None:
    """More submitters than a thread remembers, and threads that come and go."""
    made = [make_submitter(lanes=2) for _ in range(9)]

    def use_all(lane: int) -> None:
        for submitter, _ring in made:
            submitter.chosen = lane
        for _ in range(2):
            for submitter, _ring in made:
                if submitter.submit("none").lane is not submitter.lanes[lane]:
                    wrong.append(lane)

    wrong: list[int] = []
    for lane in (0, 1, 1, 0):
        thread = threading.Thread(target=use_all, args=(lane,))
        thread.start()
        thread.join()
    assert not wrong
    for submitter, ring in made:
        assert [int(head) for head in ring.head] == [4, 4]
        assert submitter.slow == []


def test_a_lane_of_another_ring_is_not_used(make_submitter: MakeSubmitter) -> None:
    submitter, ring = make_submitter()
    other, others = make_submitter()
    submitter.lanes = other.lanes
    assert submitter.submit("none") == "slow"
    assert int(ring.head[0]) == int(others.head[0]) == 0


def test_submitters_in_cycles_are_collected(make_submitter: MakeSubmitter) -> None:
    submitter, _ = make_submitter()
    submitter.submit("none")
    submitter.itself = submitter
    gone = weakref.ref(submitter)
    del submitter
    gc.collect()
    assert gone() is None
