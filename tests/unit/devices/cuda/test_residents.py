"""Resident grids and the calls that wait for them, with grids and a driver that only take notes."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.devices.cuda.context import Discarded
from kernelkeep.devices.cuda.residents import Residents


class _Device:
    """As much of a device as the registry uses."""

    closed = False
    lost = ""
    current = contextlib.nullcontext()

    def __init__(self, load: Callable[[], None] = lambda: None) -> None:
        self.load_all_code = load


class _Grid:
    """Takes notes in a list that grids share."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name, self.notes = name, notes
        self.device: Any = _Device()
        self.runs = self.stopped = False
        self.refuses_to_end = self.refuses_to_start = False
        self._lock = threading.Lock()

    def stop(self) -> None:
        """As its user does it: from now on `resume` does nothing."""
        with self._lock:
            self.stopped, self.runs = True, False

    def suspend(self) -> None:
        if self.refuses_to_end:
            raise kk.DeviceError(f"{self.name} has a task that never ends")
        if self.runs:
            self.runs = False
            self.notes.append(f"{self.name} ends")

    def resume(self) -> None:
        if self.refuses_to_start:
            raise kk.DeviceError(f"{self.name} cannot be launched")
        with self._lock:
            if self.runs or self.stopped:
                return
            self.runs = True
            self.notes.append(f"{self.name} starts")


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def residents() -> Residents:
    return Residents(Discarded())


def test_calls_are_postponed_while_a_grid_lives(residents: Residents, notes: list[str]) -> None:
    grid, discarded = _Grid("a", notes), residents.discarded
    residents.add(grid)
    assert grid.runs
    discarded.add(notes.append, "freed")
    discarded.clear()
    assert not discarded.begin()
    assert notes == ["a starts"]
    assert discarded.waiting == 1
    grid.suspend()
    residents.remove(grid)
    assert notes == ["a starts", "a ends", "freed"]
    assert discarded.begin()


def test_two_grids_hold_the_calls_until_both_have_ended(residents: Residents, notes: list[str]) -> None:
    first, second = _Grid("a", notes), _Grid("b", notes)
    residents.add(first)
    residents.add(second)
    residents.discarded.add(notes.append, "freed")
    residents.remove(first)
    assert residents.discarded.waiting == 1
    residents.remove(second)
    assert residents.discarded.waiting == 0


def test_a_block_suspends_all_grids_once_and_makes_the_postponed_calls_first(
    residents: Residents, notes: list[str]
) -> None:
    for name in ("a", "b"):
        residents.add(_Grid(name, notes))
    residents.discarded.add(notes.append, "freed")
    notes.clear()
    with residents.out_of_the_way(), residents.out_of_the_way():
        notes.append("loaded")
        assert residents.discarded.begin()  # any thread may free now
        residents.discarded.end()
    assert notes == ["a ends", "b ends", "freed", "loaded", "a starts", "b starts"]
    assert residents.discarded.held


def test_a_short_block_makes_one_postponed_call_at_least_and_begins_none_too_late(
    residents: Residents, notes: list[str]
) -> None:
    residents.add(_Grid("a", notes))
    notes.clear()

    def free(name: str) -> None:
        notes.append(name)
        time.sleep(0.02)

    for name in ("first", "second", "third"):
        residents.discarded.add(free, name, nbytes=1000)
    with residents.out_of_the_way(calls_seconds=0.001):
        notes.append("loaded")
    assert notes == ["a ends", "first", "loaded", "a starts"]
    assert residents.discarded.waiting == 2
    assert residents.discarded.count_bytes() == 2000
    for _ in range(2):
        with residents.out_of_the_way(calls_seconds=0.001):
            pass
    assert [name for name in notes if name in {"first", "second", "third"}] == ["first", "second", "third"]
    assert residents.discarded.count_bytes() == 0


def test_sizes_are_forgotten_with_the_last_postponed_call_also_where_it_fails(
    residents: Residents, notes: list[str]
) -> None:
    residents.add(_Grid("a", notes))

    def fail() -> None:
        raise KeyboardInterrupt

    residents.discarded.add(fail, nbytes=1000)
    with pytest.raises(KeyboardInterrupt), residents.out_of_the_way(calls_seconds=1.0):
        pass
    assert residents.discarded.count_bytes() == 0
    assert residents.discarded.held
    assert not residents.discarded.under_way


def test_calls_that_a_short_block_left_are_made_before_the_next_block_of_another_thread(
    residents: Residents, notes: list[str]
) -> None:
    residents.add(_Grid("a", notes))
    notes.clear()

    def free(name: str) -> None:
        notes.append(name)
        time.sleep(0.01)

    for name in ("first", "second"):
        residents.discarded.add(free, name)

    def load() -> None:
        with residents.out_of_the_way():
            notes.append("loaded")

    with residents.out_of_the_way(calls_seconds=0.001):
        other = threading.Thread(target=load)
        other.start()
        other.join()
    assert notes == ["a ends", "first", "second", "loaded", "a starts"]


def test_after_a_call_that_failed_the_others_still_count(residents: Residents, notes: list[str]) -> None:
    residents.add(_Grid("a", notes))

    def fail() -> None:
        raise kk.DeviceError("refused")

    residents.discarded.add(fail, nbytes=1000)
    residents.discarded.add(notes.append, "freed", nbytes=500)
    with pytest.raises(kk.DeviceError, match="refused"), residents.out_of_the_way():
        pass
    assert residents.discarded.count_bytes() >= 500
    with residents.out_of_the_way():
        pass
    assert "freed" in notes
    assert residents.discarded.count_bytes() == 0


def test_an_interruption_while_calls_are_made_leaves_none_under_way(notes: list[str]) -> None:
    def interrupted(at: int) -> int:
        discarded, begun = Discarded(), []
        discarded.add(notes.append, "freed")

        def trace(frame: Any, event: str, _: Any) -> None:
            # Where a function begins, a signal's handler may run.
            if frame.f_code.co_filename == Discarded.clear.__code__.co_filename:
                begun.append(event)
                if len(begun) == at:
                    raise KeyboardInterrupt

        sys.settrace(trace)
        try:
            discarded.clear()
            if discarded.begin():
                discarded.end()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert not discarded.under_way, at
        return len(begun)

    functions = interrupted(0)
    assert functions > 2
    for at in range(1, functions + 1):
        interrupted(at)


def test_a_block_without_grids_calls_nothing(residents: Residents) -> None:
    with residents.out_of_the_way():
        assert residents.discarded.begin()
        residents.discarded.end()
    assert not residents.discarded.held


def test_an_error_in_the_block_leaves_the_grids_running(residents: Residents, notes: list[str]) -> None:
    grid = _Grid("a", notes)
    residents.add(grid)
    with pytest.raises(kk.BinaryRejected), residents.out_of_the_way():
        raise kk.BinaryRejected("not code")
    assert grid.runs
    assert residents.discarded.held


def test_a_grid_that_cannot_be_suspended_is_reported_and_the_others_run_on(
    residents: Residents, notes: list[str]
) -> None:
    first, second = _Grid("a", notes), _Grid("b", notes)
    residents.add(first)
    residents.add(second)
    second.refuses_to_end = True
    residents.discarded.add(notes.append, "freed")
    with pytest.raises(kk.DeviceError, match="b has a task that never ends"), residents.out_of_the_way():
        pytest.fail("the block must not run")
    assert first.runs
    assert residents.discarded.held
    assert "freed" not in notes
    second.refuses_to_end = False
    with residents.out_of_the_way():
        assert "freed" in notes


def test_a_grid_that_cannot_be_launched_is_not_registered(residents: Residents, notes: list[str]) -> None:
    first, second = _Grid("a", notes), _Grid("b", notes)
    second.refuses_to_start = True
    with pytest.raises(kk.DeviceError, match="b cannot be launched"):
        residents.add(second)
    assert not residents.discarded.held
    residents.add(first)
    with pytest.raises(kk.DeviceError, match="b cannot be launched"):
        residents.add(second)
    assert residents.grids == [first]
    assert first.runs
    assert residents.discarded.held


def test_a_grid_that_cannot_be_launched_again_fails_neither_the_others_nor_who_loads_code(
    residents: Residents, notes: list[str]
) -> None:
    first, second = _Grid("a", notes), _Grid("b", notes)
    residents.add(first)
    residents.add(second)
    first.refuses_to_start = True
    with pytest.warns(RuntimeWarning, match="could not be launched again: a cannot be launched"):
        with residents.out_of_the_way():
            pass
    assert second.runs
    first.refuses_to_start = False
    with residents.out_of_the_way():
        pass
    assert first.runs


def _interrupt() -> None:
    raise KeyboardInterrupt


def _once(call: Callable[..., Any], *, after: bool = False) -> Callable[..., Any]:
    """As `call`, but Ctrl-C comes at the first call, before it or right after."""
    left = [1]

    def interrupted(*args: Any) -> Any:
        if not left:
            return call(*args)
        left.clear()
        if after:
            call(*args)
        raise KeyboardInterrupt

    return interrupted


def test_an_interruption_after_the_grids_were_suspended_launches_them_again(
    residents: Residents, notes: list[str]
) -> None:
    grids = [_Grid("a", notes), _Grid("b", notes)]
    for grid in grids:
        residents.add(grid)
    residents.discarded.add(_interrupt)
    with pytest.raises(KeyboardInterrupt), residents.out_of_the_way():
        pytest.fail("the block must not run")
    assert [grid.runs for grid in grids] == [True, True]
    assert residents.discarded.held and not residents.discarded.under_way
    with residents.out_of_the_way():
        assert [grid.runs for grid in grids] == [False, False]
    assert [grid.runs for grid in grids] == [True, True]


@pytest.mark.parametrize("call", ["suspend", "resume"])
@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interruption_while_a_grid_is_suspended_or_launched_leaves_none_away(
    residents: Residents, notes: list[str], monkeypatch: pytest.MonkeyPatch, call: str, name: str, after: bool
) -> None:
    grids = [_Grid("a", notes), _Grid("b", notes)]
    for grid in grids:
        residents.add(grid)
    (one,) = [grid for grid in grids if grid.name == name]
    monkeypatch.setattr(one, call, _once(getattr(one, call), after=after))
    with pytest.raises(KeyboardInterrupt), residents.out_of_the_way():
        pass
    assert [grid.runs for grid in grids] == [True, True]
    assert residents.discarded.held
    with residents.out_of_the_way():
        assert [grid.runs for grid in grids] == [False, False]


def test_an_interruption_comes_before_the_error_of_another_grid(
    residents: Residents, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = _Grid("a", notes), _Grid("b", notes)
    residents.add(first)
    residents.add(second)
    monkeypatch.setattr(second, "resume", _once(second.resume))
    first.refuses_to_start = True
    with pytest.raises(KeyboardInterrupt), residents.out_of_the_way():
        pass
    assert (first.runs, second.runs) == (False, True)


def test_an_interruption_while_a_launch_waits_for_a_free_is_raised_after_it(
    residents: Residents, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, discarded = _Grid("a", notes), residents.discarded
    residents.add(grid)

    def free() -> None:
        discarded.end()
        raise KeyboardInterrupt

    naps = [free, _interrupt]  # the last one first
    monkeypatch.setattr(time, "sleep", lambda seconds: naps.pop()())
    with pytest.raises(KeyboardInterrupt), residents.out_of_the_way():
        assert discarded.begin()
    assert naps == [] and grid.runs and discarded.held


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("end", [False, True], ids=["begins", "ends"])
def test_an_interruption_at_the_lock_of_a_block_leaves_no_grid_away(
    residents: Residents, notes: list[str], after: bool, end: bool
) -> None:
    class After:
        def __enter__(self) -> None:
            lock.acquire()

        def __exit__(self, *exc: object) -> None:
            residents._turn = lock
            lock.release()
            raise KeyboardInterrupt

    class Before:
        def __enter__(self) -> None:
            residents._turn = lock
            raise KeyboardInterrupt

        def __exit__(self, *exc: object) -> None:
            pytest.fail("it was not entered")

    grid, lock = _Grid("a", notes), residents._turn
    residents.add(grid)
    interrupting: Any = After() if after else Before()

    def load() -> None:
        if not end:
            residents._turn = interrupting
        with residents.out_of_the_way():
            assert end, "the block must not run"
            residents._turn = interrupting

    with pytest.raises(KeyboardInterrupt):
        load()
    assert grid.runs and residents.discarded.held
    with residents.out_of_the_way():
        assert not grid.runs
    assert grid.runs


def test_a_grid_whose_addition_is_interrupted_is_not_registered(
    residents: Residents, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = _Grid("a", notes), _Grid("b", notes)
    residents.add(first)
    monkeypatch.setattr(second, "resume", _once(second.resume))
    with pytest.raises(KeyboardInterrupt):
        residents.add(second)
    assert residents.grids == [first]
    assert (first.runs, second.runs) == (True, False)


def test_a_grid_added_in_a_block_starts_at_its_end(residents: Residents, notes: list[str]) -> None:
    with residents.out_of_the_way():
        residents.add(_Grid("a", notes))
        notes.append("loaded")
    assert notes == ["loaded", "a starts"]


def test_a_registered_grid_that_is_added_again_runs_in_no_block(residents: Residents, notes: list[str]) -> None:
    grid = _Grid("a", notes)
    residents.add(grid)
    with residents.out_of_the_way():
        again = threading.Thread(target=residents.add, args=(grid,))
        again.start()
        again.join(30)
        residents.add(grid)  # in this thread, too
        assert not again.is_alive() and not grid.runs
    assert grid.runs
    grid.runs = False  # as after a launch that failed
    residents.add(grid)
    assert grid.runs and residents.grids == [grid]


def test_a_grid_removed_in_a_block_is_not_started_again(residents: Residents, notes: list[str]) -> None:
    first, second = _Grid("a", notes), _Grid("b", notes)
    residents.add(first)
    residents.add(second)
    with residents.out_of_the_way():
        residents.remove(first)
    assert (first.runs, second.runs) == (False, True)


def test_code_is_loaded_before_the_first_launch(residents: Residents, notes: list[str]) -> None:
    device: Any = _Device(lambda: notes.append("code"))
    residents.devices.add(device)
    residents.add(_Grid("a", notes))
    assert notes == ["code", "a starts"]


def test_code_that_does_not_fit_is_an_error_and_no_grid_runs(residents: Residents, notes: list[str]) -> None:
    def load() -> None:
        raise kk.OutOfMemory("no memory for code")

    device: Any = _Device(load)
    residents.devices.add(device)
    with pytest.raises(kk.OutOfMemory):
        residents.add(_Grid("a", notes))
    assert notes == []
    assert residents.grids == []
    assert not residents.discarded.held


def test_what_waits_to_be_freed_is_limited(residents: Residents, notes: list[str]) -> None:
    grid, discarded = _Grid("a", notes), residents.discarded
    residents.add(grid)
    notes.clear()
    for _ in range(9):
        discarded.add(notes.append, "freed", nbytes=100)
        residents.limit_postponed(8000)  # up to an eighth of it
    assert notes == []
    discarded.add(notes.append, "freed", nbytes=100)
    assert discarded.count_bytes() == 1000
    residents.limit_postponed(8000)
    assert notes == ["a ends", *["freed"] * 10, "a starts"]
    assert discarded.count_bytes() == 0
    with residents.out_of_the_way(calls_seconds=0.0):
        discarded.add(notes.append, "freed", nbytes=600)
        discarded.add(notes.append, "freed", nbytes=400)
    notes.clear()
    residents.limit_postponed(8000)
    assert notes == ["a ends", "freed", "freed", "a starts"]
    for _ in range(10_000):
        discarded.add(lambda: None)
    residents.limit_postponed(8000)
    assert discarded.waiting == 0


def test_a_grid_that_cannot_be_suspended_fails_no_allocation(residents: Residents, notes: list[str]) -> None:
    grid, discarded = _Grid("a", notes), residents.discarded
    residents.add(grid)
    grid.refuses_to_end = True
    discarded.add(notes.append, "freed", nbytes=1000)
    residents.limit_postponed(8000)
    grid.refuses_to_end = False
    residents.limit_postponed(8000)  # not asked again so soon: each time it takes long
    assert notes == ["a starts"]
    discarded.add(notes.append, "freed", nbytes=1000)
    residents.limit_postponed(8000)
    assert notes == ["a starts", "a ends", "freed", "freed", "a starts"]


def test_a_grid_may_not_load_code_while_it_is_launched(residents: Residents, notes: list[str]) -> None:
    class Loads(_Grid):
        def resume(self) -> None:
            with residents.out_of_the_way():
                super().resume()

    with pytest.raises(kk.DeviceError, match="must not load code"):
        residents.add(Loads("a", notes))
    assert notes == []


def test_a_launch_waits_for_a_free_that_is_under_way(residents: Residents, notes: list[str]) -> None:
    discarded = residents.discarded
    assert discarded.begin()
    thread = threading.Thread(target=residents.add, args=(_Grid("a", notes),))
    thread.start()
    while not discarded.held:
        time.sleep(1e-4)
    assert not discarded.begin()  # no new one meanwhile
    assert notes == []
    discarded.end()
    thread.join()
    assert notes == ["a starts"]


def test_a_launch_waits_for_other_threads_blocks(residents: Residents, notes: list[str]) -> None:
    with residents.out_of_the_way():
        thread = threading.Thread(target=residents.add, args=(_Grid("a", notes),))
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        assert notes == []
    thread.join()
    assert notes == ["a starts"]


def test_a_launch_that_fails_holds_up_no_other(residents: Residents, notes: list[str]) -> None:
    first, second = _Grid("a", notes), _Grid("b", notes)
    residents.add(first)
    waiting = threading.Event()

    def add() -> None:
        waiting.set()
        residents.add(second)

    thread = threading.Thread(target=add)

    def load() -> None:
        with residents.out_of_the_way():
            first.refuses_to_start = True
            thread.start()
            waiting.wait()
        thread.join(30)

    with pytest.warns(RuntimeWarning, match="a cannot be launched"):
        load()
    assert not thread.is_alive()
    assert second.runs
    assert second in residents.grids


def test_no_grid_runs_in_any_threads_block(residents: Residents, notes: list[str]) -> None:
    """Eight threads come and go, and free in between; one adds and removes a grid."""
    grids = [_Grid("a", notes), _Grid("b", notes)]
    wrong: list[str] = []

    def check() -> None:
        if any(grid.runs for grid in grids):
            wrong.append("a grid runs")

    def load() -> None:
        for _ in range(200):
            with residents.out_of_the_way():
                check()
                time.sleep(0)
                check()
            residents.discarded.add(check)
            residents.discarded.clear()

    def come_and_go() -> None:
        for _ in range(100):
            grids[1].stopped = False
            residents.add(grids[1])
            grids[1].stop()
            residents.remove(grids[1])

    residents.add(grids[0])
    threads = [threading.Thread(target=load) for _ in range(7)] + [threading.Thread(target=come_and_go)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []
    assert grids[0].runs
    grids[0].suspend()
    residents.remove(grids[0])
    assert residents.discarded.waiting == 0
    assert residents.discarded.under_way == []


# --- Ctrl-C anywhere

_WATCHED = {"residents.py", "context.py", "threading.py", "contextlib.py"}


def _situations(residents: Residents, grid: _Grid, other: _Grid) -> dict[str, Callable[[], None]]:
    def block() -> None:
        with residents.out_of_the_way():
            pass

    def short_block() -> None:
        with residents.out_of_the_way(calls_seconds=1e-4):
            pass

    def nested() -> None:
        with residents.out_of_the_way():
            block()

    def add_in_block() -> None:
        with residents.out_of_the_way():
            residents.add(other)

    def add_again() -> None:
        grid.runs = False
        residents.add(grid)

    def remove() -> None:
        grid.stop()
        residents.remove(grid)

    def clear() -> None:
        remove()
        residents.discarded.add(lambda: None)
        residents.discarded.clear()

    return {
        "block": block, "short_block": short_block, "nested": nested, "add": lambda: residents.add(other),
        "add_in_block": add_in_block, "add_again": add_again, "remove": remove, "clear": clear,
        "limit": lambda: residents.limit_postponed(0),
    }  # fmt: skip


def _interrupted_at(place: int, situation: str) -> str | None:
    """Have Ctrl-C come at the place with this number, where the interpreter looks for signals. Which place that was."""
    residents, notes = Residents(Discarded()), list[str]()
    grid, other = _Grid("a", notes), _Grid("b", notes)
    residents.add(grid)
    for _ in range(2):
        residents.discarded.add(lambda: None, nbytes=10)
    act = _situations(residents, grid, other)[situation]
    passed, where = 0, None

    def look(frame: Any, event: str, called: Any) -> None:
        nonlocal passed, where
        if event in ("call", "c_return") and Path(frame.f_code.co_filename).name in _WATCHED:
            passed += 1
            if passed == place:
                name = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                where = f"{situation}: {event} {getattr(called, '__name__', '')} in {frame.f_code.co_name} of {name}"
                raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        act()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    assert not residents.discarded.under_way, where
    assert residents.discarded.held == bool(residents.grids), where
    assert (other in residents.grids) == other.runs, where
    assert grid.runs or grid not in residents.grids or situation == "add_again" or grid.stopped, where
    # Nobody waits for a block that has no end: another thread can have one.
    ended = threading.Thread(target=_situations(residents, grid, other)["block"], daemon=True)
    ended.start()
    ended.join(10)
    assert not ended.is_alive(), where
    assert grid.runs or grid not in residents.grids or grid.stopped, where
    return where


@pytest.mark.parametrize(
    "situation",
    ["block", "short_block", "nested", "add", "add_in_block", "add_again", "remove", "clear", "limit"],
)
def test_an_interruption_anywhere_leaves_no_grid_away_and_no_call_held(situation: str) -> None:
    places = 0
    while _interrupted_at(places + 1, situation) is not None:
        places += 1
    assert places >= 5


def test_a_grid_is_not_registered_where_another_one_cannot_be_launched_again(
    residents: Residents, notes: list[str]
) -> None:
    first, second = _Grid("a", notes), _Grid("b", notes)
    residents.add(first)
    first.refuses_to_start = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="a cannot be launched"):
            residents.add(second)
    assert residents.grids == [first] and not second.runs
    first.refuses_to_start = False
    with residents.out_of_the_way():
        pass
    assert first.runs and not second.runs


def test_postponed_calls_of_other_threads_do_not_hold_up_a_launch(residents: Residents, notes: list[str]) -> None:
    """A short block leaves calls; whoever allocates meanwhile begins to make them, and stops when the grid is to go on."""
    first = threading.Event()

    def free() -> None:
        notes.append("free")
        first.set()
        time.sleep(0.02)

    residents.add(_Grid("a", notes))
    residents.discarded.add(notes.append, "of the block")
    for _ in range(50):
        residents.discarded.add(free)
    with residents.out_of_the_way(calls_seconds=0.0):
        other = threading.Thread(target=residents.discarded.clear)
        other.start()
        assert first.wait(10)
    other.join(10)
    assert residents.discarded.waiting > 40
    assert notes[-1] == "a starts"


def test_sizes_of_several_threads_are_those_of_the_calls_that_wait() -> None:
    discarded = Discarded()

    def come_and_go() -> None:
        for _ in range(2000):
            discarded.add(lambda: None, nbytes=100)
            discarded.count_bytes()
            discarded.clear()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    discarded.add(lambda: None, nbytes=7)
    assert (discarded.waiting, discarded.count_bytes()) == (1, 7)
