"""Blocks that share a graph, as a model: tickets, the queue, helpers that join and leave, in thousands of orders of events.

A block is a generator that yields after each access to shared memory, which is atomic. The model has what `signal`,
`find_chain`, `offer`, `join` and the end of `run_graph` in `cuda_resident.cu` do, and leaves out wide tasks and what the tasks
do. In no order of events may a chain be lost or run twice or too early, a block wait for ever, or anything be left behind for the
next run. A rule that is left out must be noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator

import pytest

Steps = Generator[None, None, None]
NONE = -1


class Shared:
    """Memory that all blocks see."""

    def __init__(self, waits: dict[int, list[int]], helpers: int) -> None:
        chains = sorted(waits)
        self.before = waits
        self.waits = {chain: len(waits[chain]) for chain in chains}
        self.successors = {chain: [one for one in chains if chain in waits[one]] for chain in chains}
        self.roots = [chain for chain in chains if not waits[chain]]
        self.ends = sum(not self.successors[chain] for chain in chains)
        self.most_helpers = helpers
        self.arrived = dict.fromkeys(chains, 0)
        self.queue = [0] * len(chains)
        self.queued = self.given = self.ended = 0
        self.open = False
        self.inside = 0
        self.ran = dict.fromkeys(chains, 0)


class Blocks:
    """What the blocks do; `without` leaves a rule out."""

    def __init__(self, shared: Shared, without: str = "") -> None:
        self.shared, self.without = shared, without

    def signal(self, successors: list[int], goes_on: bool) -> Generator[None, None, int]:
        s, following = self.shared, 0
        for chain in successors:
            if s.waits[chain] > 1:
                s.arrived[chain] += 1
                ready = s.arrived[chain] == s.waits[chain]
                yield
                if ready:
                    if self.without != "arrived is set back":
                        s.arrived[chain] = 0
                        yield
                else:
                    continue
            if goes_on and not following:
                following = chain
                continue
            at = s.queued
            s.queued += 1
            yield
            s.queue[at] = chain
            yield
        return following

    def work_on(self, chain: int, has_tasks: Callable[[], bool] | None) -> Steps:
        s, ticket = self.shared, NONE
        while True:
            while chain:
                assert all(s.ran[one] == s.ran[chain] + 1 for one in s.before[chain]), "too early, or twice"
                s.ran[chain] += 1
                yield
                if s.successors[chain]:
                    goes_on = has_tasks is None or not has_tasks()
                    chain = yield from self.signal(s.successors[chain], goes_on)
                else:
                    s.ended += 1
                    yield
                    chain = 0
            if has_tasks is not None and has_tasks():
                return
            ticket = s.given
            s.given += 1
            yield
            while True:  # find_chain
                queued, given = s.queued, s.given
                yield
                chain = s.queue[ticket] if 0 <= ticket < len(s.queue) else 0
                yield
                if chain:
                    if self.without != "the queue is emptied":
                        s.queue[ticket] = 0
                        yield
                    ticket = NONE
                    break
                over = s.ended == s.ends
                yield
                if over:
                    return
                if ticket != NONE:
                    if self.without == "only the last ticket is given back":
                        if queued <= ticket:
                            s.given -= 1
                            ticket = NONE
                            yield
                    elif queued <= ticket and given == ticket + 1:
                        if (s.queued, s.given) == (queued, given):
                            s.given -= 1
                            ticket = NONE
                        yield
                elif given < queued:
                    ticket = s.given
                    s.given += 1
                    yield
                elif has_tasks is not None and has_tasks():
                    return

    def owner(self, runs: int) -> Steps:
        s = self.shared
        for _ in range(runs):
            s.open = True
            yield
            chain = yield from self.signal(s.roots, True)
            yield from self.work_on(chain, None)
            s.open = False
            yield
            while s.inside and self.without != "the owner waits for helpers":
                yield
            s.queued = s.given = 0
            yield
            s.ended = 0
            yield

    def helper(self, joins: int, chance: random.Random) -> Steps:
        s = self.shared
        for _ in range(joins):
            was_open, before = s.open, s.inside
            s.inside += 1
            yield
            if was_open and before < s.most_helpers:
                patience = chance.choice([0, 3, 10, 1000])
                yield from self.work_on(0, Tasks(patience))
            s.inside -= 1
            yield


class Tasks:
    """A block gets tasks of its own after a number of looks, and has them until it has left."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def __call__(self) -> bool:
        self._looks -= 1
        return self._looks < 0


GRAPHS = {
    "fan": {1: [], 2: [1], 3: [1], 4: [1], 5: [1], 6: [2, 3, 4, 5]},
    "roots": {1: [], 2: [], 3: [], 4: [1, 2], 5: [2, 3]},
    "ladder": {1: [], 2: [1], 3: [1], 4: [2, 3], 5: [2, 3], 6: [4, 5], 7: [4, 5]},
    "ends": {1: [], 2: [1], 3: [1], 4: [2], 5: [2], 6: [3]},
}
RUNS = 3


def play(waits: dict[int, list[int]], seed: int, without: str = "") -> None:
    """Run a graph three times with three helpers, in an order that chance chooses."""
    chance = random.Random(seed)
    shared = Shared(waits, helpers=chance.randint(1, 3))
    blocks = Blocks(shared, without)
    running: list[Steps] = [blocks.owner(RUNS), *(blocks.helper(chance.randint(1, 12), chance) for _ in range(3))]
    burst = chance.choice([1, 3, 30])
    for _ in range(20_000):
        one = chance.choice(running)
        for _ in range(chance.randint(1, burst)):
            try:
                next(one)
            except StopIteration:
                running.remove(one)
                break
        if not running:
            break
    assert not running, "a block waits for ever"
    assert set(shared.ran.values()) == {RUNS}
    assert (shared.queued, shared.given, shared.ended, shared.inside) == (0, 0, 0, 0)
    assert not any(shared.queue) and not any(shared.arrived.values())


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_chain_runs_once_in_every_run(graph: str) -> None:
    for seed in range(500):
        play(GRAPHS[graph], seed)


@pytest.mark.parametrize(
    "rule",
    [
        "arrived is set back",
        "the queue is emptied",
        "only the last ticket is given back",
        "the owner waits for helpers",
    ],
)
def test_a_rule_that_is_left_out_is_noticed(rule: str) -> None:
    noticed = 0
    for graph in GRAPHS.values():
        for seed in range(100):
            try:
                play(graph, seed, without=rule)
            except (AssertionError, IndexError):
                noticed += 1
                break
    assert noticed
