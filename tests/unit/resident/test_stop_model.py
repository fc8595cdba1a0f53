"""How a block's workers agree before which group of tasks they stop, as a model: every order of events with two workers.

The rules are those of the loop in `kk_run_records` in `cuda_resident.cu`. At the beginning of a group a worker looks at two
words: whether something is wanted, which may change at any time, and before which task they stop, which the publisher writes. All
must stop before the same group, and before the third one when something stays wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

GROUPS = 5
BEGINS, SAYS, RUNS, WAITS, STOPPED = range(5)


class Disagreement(AssertionError):
    pass


class Worker(NamedTuple):
    group: int = 0
    at: int = BEGINS
    wanted: bool = False  # as it saw it


class State(NamedTuple):
    workers: tuple[Worker, ...]  # the first is the publisher
    wanted: bool = False
    changes: int = 0
    stop: int = 0


def step(state: State, at: int, without: str) -> State:
    worker, stop = state.workers[at], state.stop
    if worker.at == BEGINS:
        stops = stop == worker.group and (worker.group > 0 or without == "run the first group")
        after = worker._replace(at=STOPPED if stops else SAYS, wanted=state.wanted)
    elif worker.at == SAYS:
        if at == 0 and worker.wanted:
            stop = worker.group if without == "say it for the next group" else worker.group + 1
        after = worker._replace(at=RUNS)
        if at and worker.wanted and without == "let the publisher decide":
            after = worker._replace(at=STOPPED)
    else:
        after = worker._replace(at=WAITS)
    return state._replace(workers=(*state.workers[:at], after, *state.workers[at + 1 :]), stop=stop)


def following(state: State, without: str) -> list[State]:
    """All that may happen next; nothing when all have stopped, or run all groups."""
    places = {worker.at for worker in state.workers}
    if places == {STOPPED}:
        return []
    if places == {WAITS, STOPPED}:
        raise Disagreement(f"some stop, the others wait for them: {state}")
    if places == {WAITS}:
        if state.workers[0].group + 1 == GROUPS:
            return []
        return [state._replace(workers=tuple(Worker(worker.group + 1) for worker in state.workers))]
    found = [step(state, at, without) for at, one in enumerate(state.workers) if one.at not in (WAITS, STOPPED)]
    if state.changes < 3:
        found.append(state._replace(wanted=not state.wanted, changes=state.changes + 1))
    return found


def explore(first: State, without: str = "", check: Callable[[State], None] = lambda state: None) -> int:
    """Go through all states; how many there are."""
    seen, left = {first}, [first]
    while left:
        state = left.pop()
        check(state)
        for one in following(state, without):
            if one not in seen:
                seen.add(one)
                left.append(one)
    return len(seen)


WORKERS = (Worker(), Worker())


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_all_workers_stop_before_the_same_group(stop: int) -> None:
    """Whatever the word was when they began."""
    assert explore(State(WORKERS, stop=stop)) > 100


@pytest.mark.parametrize("without", ["say it for the next group", "let the publisher decide"])
def test_a_rule_that_is_left_out_is_noticed(without: str) -> None:
    with pytest.raises(Disagreement):
        explore(State(WORKERS), without)


def test_something_is_run_whatever_the_word_was() -> None:
    """Or a block would begin again and again, and stop each time."""

    def check(state: State) -> None:
        assert all(worker.group or worker.at != STOPPED for worker in state.workers)

    explore(State(WORKERS), check=check)
    with pytest.raises(AssertionError):
        explore(State(WORKERS), "run the first group", check)


def test_what_stays_wanted_is_seen_to_before_the_third_group() -> None:
    """The first one may have begun before it was wanted."""

    def check(state: State) -> None:
        assert all(worker.group < 2 or worker.at in (BEGINS, STOPPED) for worker in state.workers)

    began = tuple(Worker(at=SAYS, wanted=False) for _ in WORKERS)
    explore(State(began, wanted=True, changes=3), check=check)
