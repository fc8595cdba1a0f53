"""How a block's workers agree behind which task they stop, as a model: every order of events with two workers.

The rules are those of the loop in `kk_run_records` in `cuda_resident.cu`. Between two meetings a worker looks at the word that
the publisher writes, and compares what it saw at the end of its task. Whoever wants something says so, and takes it back, at any
time. All must stop behind the same task, and within two tasks when it stays wanted.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

TASKS = 5


class Disagreement(AssertionError):
    pass


class Worker(NamedTuple):
    number: int = 0  # tasks it has run
    looked: bool = False
    wanted: bool = False  # as it saw it
    stop: int = 0
    waits: bool = False  # for the others


class State(NamedTuple):
    workers: tuple[Worker, ...]  # the first is the publisher
    wanted: bool = False
    changes: int = 0
    stop: int = 0


def steps(state: State, without: str) -> list[State]:
    found = []
    if state.changes < 3:
        found.append(state._replace(wanted=not state.wanted, changes=state.changes + 1))
    for at, worker in enumerate(state.workers):
        if worker.waits:
            continue
        stop = state.stop
        if not worker.looked:
            after = worker._replace(looked=True, wanted=state.wanted, stop=state.stop)
        else:
            number = worker.number + 1
            after = worker._replace(number=number, waits=True)
            stops = worker.stop == number and without != "keep its mind"
            if at == 0 and worker.wanted and not stops:
                stop = number if without == "say it for the next task" else number + 1
        found.append(state._replace(workers=(*state.workers[:at], after, *state.workers[at + 1 :]), stop=stop))
    return found


def meet(state: State) -> State | None:
    """All are at the end of the task: they go on, or stop together; None if they stopped or have run all tasks."""
    numbers = {worker.number for worker in state.workers}
    stopped = [worker.stop == worker.number for worker in state.workers]
    if len(numbers) > 1 or any(stopped) != all(stopped):
        raise Disagreement(f"they do not stop together: {state}")
    if all(stopped) or numbers == {TASKS}:
        return None
    return state._replace(workers=tuple(worker._replace(looked=False, waits=False) for worker in state.workers))


def explore(without: str = "", first_stop: int = 0) -> set[int]:
    """Go through all states; behind which tasks the workers stopped."""
    first = State((Worker(), Worker()), stop=first_stop)
    seen, left, ends = {first}, [first], set()
    while left:
        state = left.pop()
        if all(worker.waits for worker in state.workers):
            met = meet(state)
            if met is None:
                ends.add(state.workers[0].number)
            following = [] if met is None else [met]
        else:
            following = steps(state, without)
        for one in following:
            if one not in seen:
                seen.add(one)
                left.append(one)
    return ends


@pytest.mark.parametrize("first_stop", [0, 1, 3])
def test_all_workers_stop_behind_the_same_task(first_stop: int) -> None:
    """Whatever the word was when they began. If that was the number of a task, they stop for nothing."""
    assert max(explore(first_stop=first_stop)) == (first_stop or TASKS)


@pytest.mark.parametrize("without", ["say it for the next task", "keep its mind"])
def test_a_rule_that_is_left_out_is_noticed(without: str) -> None:
    with pytest.raises(Disagreement):
        explore(without)


def test_what_stays_wanted_is_seen_to_within_two_tasks() -> None:
    state = State((Worker(), Worker()), wanted=True, changes=3)
    seen, left, longest = {state}, [state], 0
    while left:
        state = left.pop()
        following = steps(state, "")
        if all(worker.waits for worker in state.workers):
            met = meet(state)
            longest = max(longest, state.workers[0].number)
            following = [] if met is None else [met]
        for one in following:
            if one not in seen:
                seen.add(one)
                left.append(one)
    assert longest == 2
