"""How a block's workers hand tasks over to its writer, as a model: every order of events with few tasks and fewer bells.

The rules are those of `kk_run_records`, `run_one` and `kk_write` in `cuda_resident.cu`. Memory is weaker than a processor's: a
store becomes visible at any time after it was made, but for stores to the same word, and for a release, before which come all
stores of its thread. The writer must never tell a task whose bell it has not heard, since what the task wrote may not be visible
yet; nor a task that the workers have told; and all must be told in the end. A rule that is left out must be noticed.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

TOLL, DONE, TOLD, DONE_RELEASED = range(4)  # stores: the bell of a task; `done`; `told` by the workers


class Violation(AssertionError):
    pass


class Case(NamedTuple):
    alone: tuple[bool, ...]  # for each task: the workers have found it themselves, and tell it
    bells: int = 2
    first: int = 0  # the number of the first task: where an earlier grid ended
    without: str = ""


class State(NamedTuple):
    ran: int  # tasks that the workers have run
    stores: tuple[tuple[int, int], ...]  # of the workers, not visible yet: kind, number
    done: int
    told: int
    tolls: tuple[int, ...]  # how often each bell was tolled
    heard: int  # behind the last task whose bell is visible
    by_workers: int  # bit by task


def begin(case: Case) -> State:
    tolls = [0] * case.bells
    if case.without != "bells begin in the right phase":
        for task in range(case.first, case.first + case.bells):
            tolls[task % case.bells] = task // case.bells & 1
    return State(case.first, (), case.first, case.first, tuple(tolls), case.first, 0)


def rung(case: Case, state: State, task: int) -> bool:
    return state.tolls[task % case.bells] & 1 != task // case.bells & 1


def arrivals(state: State) -> list[State]:
    """What may become visible next."""
    found = []
    for at, (kind, number) in enumerate(state.stores):
        before = state.stores[:at]
        same = {DONE: (DONE, DONE_RELEASED), TOLD: (TOLD,)}.get(kind)  # without a release: stores to the same word
        if before and (same is None or any(other in same for other, _ in before)):
            continue
        after = state._replace(stores=before + state.stores[at + 1 :])
        if kind == TOLL:
            tolls = list(state.tolls)
            tolls[number % len(tolls)] += 1
            after = after._replace(tolls=tuple(tolls), heard=number + 1)
        else:
            after = after._replace(told=number) if kind == TOLD else after._replace(done=number)
        found.append(after)
    return found


def run(case: Case, state: State) -> list[State]:
    """The workers run the next task, if it was fetched."""
    task, last = state.ran, case.first + len(case.alone)
    if task == last:
        return []
    if case.alone[task - case.first]:
        # They look for tasks only where all before are told: by themselves, or the reader has seen it, and says so.
        if state.told != task and not state.by_workers >> (task - 1) & 1:
            return []
        stores: tuple[tuple[int, int], ...] = ((TOLD, task + 1), (TOLL, task), (DONE_RELEASED, task + 1))
        if case.without == "told before the bell":
            stores = ((TOLL, task), (DONE_RELEASED, task + 1), (TOLD, task + 1))
        if case.without == "done behind the bell of a task alone":
            stores = ((TOLD, task + 1), (TOLL, task), (DONE, task + 1))
        by_workers = state.by_workers | 1 << task
    else:
        room = task - state.told < case.bells
        if not room and case.without != "a task is fetched where its bell is free":
            return []
        stores, by_workers = ((TOLL, task), (DONE, task + 1)), state.by_workers
    return [state._replace(ran=task + 1, stores=state.stores + stores, by_workers=by_workers)]


def write(case: Case, state: State) -> list[State]:
    """The writer looks, and tells what it may. Between its looks at words more may arrive: that is a state of its own."""
    done, told = state.done, state.told
    if done <= told:
        return []
    if case.without != "the bell is looked at" and not rung(case, state, done - 1):
        return []
    if state.heard < done:
        raise Violation(f"task {done - 1} is told, and what it wrote may not be there: {state}")
    if any(state.by_workers >> task & 1 for task in range(told, done)):
        raise Violation(f"a task of {told} to {done - 1} is told twice: {state}")
    return [state._replace(told=done)]


def explore(case: Case) -> int:
    """Go through all states; how many there are."""
    first = begin(case)
    seen, left = {first}, [first]
    while left:
        state = left.pop()
        following = [*arrivals(state), *run(case, state), *write(case, state)]
        if not following and state.told != case.first + len(case.alone):
            raise Violation(f"nothing goes on: {state}")
        for one in following:
            if one not in seen:
                seen.add(one)
                left.append(one)
    return len(seen)


CASES = {
    "tasks": Case((False,) * 7),
    "alone": Case((True,) * 7),
    "mixed": Case((True, True, True, False, False, False, True, False)),
    "four bells": Case((False, False, True, False, False, False, False, True, True, False), bells=4),
    "from the middle": Case((False, True, False, False, False), first=3),
    "from an odd round": Case((False, False, False, True, False), first=2),
}


@pytest.mark.parametrize("name", CASES)
def test_every_task_is_told_once_and_when_it_was_heard(name: str) -> None:
    assert explore(CASES[name]) > len(CASES[name].alone)


@pytest.mark.parametrize(
    ("without", "name"),
    [
        ("the bell is looked at", "tasks"),
        ("a task is fetched where its bell is free", "tasks"),
        ("bells begin in the right phase", "from the middle"),
        ("told before the bell", "mixed"),
        ("done behind the bell of a task alone", "mixed"),
    ],
)
def test_a_rule_that_is_left_out_is_noticed(without: str, name: str) -> None:
    with pytest.raises(Violation):
        explore(CASES[name]._replace(without=without))
