"""Queues: no task is lost and none is done twice, whatever the queue holds, however small it was at first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...cache.program_cache import ProgramCache
from ...continuous.program import StateProgram
from ...continuous.run import Run
from ...continuous.runner import resume, run
from ...devices.base import Device
from .common import StrategyPart

__all__ = ["QueueTests", "tree"]

_DEPTHS = 8

# A tree: each task counts itself at its depth, adds its label, and pushes `fan` children. Sums that wrap do not depend on order.
_TREE = """kk_atomic_add(count[depth], 1);
kk_atomic_add(total[0], label * 2654435761u);
if (depth == 0) return;
for (int k = 1; k <= fan; k++) { kk_push(depth - 1, label * kk_uint(fan) + kk_uint(k)); }"""


def tree(depth: int, fan: int, roots: int = 1, capacity: int = 1) -> StateProgram:
    return StateProgram(
        "tree",
        coupling="queue",
        state={"count": np.zeros(_DEPTHS, "i4"), "total": np.zeros(1, "u4")},
        tasks={"depth": np.full(roots, depth, "i4"), "label": np.arange(roots, dtype="u4")},
        scalars={"fan": fan},
        queue_capacity=capacity,
        body=_TREE,
        group=64,
    )


def _check_tree(done: Run, depth: int, fan: int, roots: int = 1) -> int:
    """Compare with a tree in NumPy; returns how many tasks it has."""
    labels: np.ndarray[Any, Any] = np.arange(roots, dtype="u4")
    count, total = np.zeros(_DEPTHS, "i4"), 0
    for level in range(depth, -1, -1):
        count[level] = labels.size
        total += int((labels * np.uint32(2654435761)).sum(dtype="u8"))
        labels = (labels[:, None] * np.uint32(fan) + np.arange(1, fan + 1, dtype="u4")).ravel()
    np.testing.assert_array_equal(done.state["count"].numpy(), count)
    assert done.state["total"].numpy()[0] == total % 2**32
    return int(count.sum())


class QueueTests(StrategyPart):
    """Programs with a queue of tasks."""

    @pytest.mark.parametrize(("depth", "fan"), [(7, 3), (2, 90)])
    def test_a_queue_that_overflows_grows(self, device: Device, cache: ProgramCache, depth: int, fan: int) -> None:
        """By a little again and again, and by far more than its capacity, in the first round of a dispatch and in later ones."""
        program = tree(depth, fan)
        for strategy in self.strategies(device):
            for size in (None, 2, 3, 16) if strategy in ("mega", "buffered") else (None,):
                with run(cache, program, None, strategy, iterations_per_dispatch=size) as done:
                    tasks = _check_tree(done, depth, fan)
                    assert done.report.stopped == "empty", (strategy, size)
                    assert done.report.tasks_done == tasks
                    assert done.report.queue_grown >= 3

    def test_a_queue_that_overflows_late_in_a_dispatch_loses_nothing(self, cache: ProgramCache) -> None:
        """The first round of a dispatch fits the queue; the second one pushes far more tasks than fit."""
        program = tree(3, 90, capacity=90 * 90 + 100)
        for strategy in ("mega", "buffered"):
            with run(cache, program, None, strategy, iterations_per_dispatch=2) as done:
                assert done.report.tasks_done == _check_tree(done, 3, 90)
                assert done.report.queue_grown >= 6

    def test_a_queue_whose_tasks_push_nothing_ends_after_one_round(self, device: Device, cache: ProgramCache) -> None:
        for strategy in self.strategies(device):
            for roots in (1, 777):
                with run(cache, tree(0, 3, roots=roots), None, strategy) as done:
                    assert _check_tree(done, 0, 3, roots) == done.report.tasks_done == roots
                    assert done.report.queue_grown == 0
                    assert done.report.stopped == "empty"

    def test_a_queue_with_room_does_not_grow(self, device: Device, cache: ProgramCache) -> None:
        for strategy in self.strategies(device):
            with run(cache, tree(4, 3, capacity=5000), None, strategy) as done:
                _check_tree(done, 4, 3)
                assert done.report.queue_grown == 0

    def test_a_checkpoint_holds_the_waiting_tasks(self, device: Device, cache: ProgramCache, tmp_path: Path) -> None:
        program = tree(6, 3)
        path = tmp_path / "tree.kkpt"
        for first in self.strategies(device):
            for rounds in (1, 3, 5):
                with run(cache, program, rounds, first, checkpoint=path, resume=False) as begun:
                    before = begun.report.tasks_done
                    assert int(begun.state["count"].numpy().sum()) == before > 0
                for then in self.strategies(device):
                    with resume(path, cache, program, None, then, checkpoint=None) as done:
                        assert before + done.report.tasks_done == _check_tree(done, 6, 3)

    def test_a_task_can_stop_the_run(self, device: Device, cache: ProgramCache) -> None:
        """The round in which a task stops the run is the last, and is completed."""
        for strategy in self.strategies(device):
            for size in (None, 2, 3) if strategy in ("mega", "buffered") else (None,):
                with run(
                    cache,
                    tree(6, 3),
                    None,
                    strategy,
                    until="depth == 3 && label % 9u == 4u",
                    iterations_per_dispatch=size,
                ) as done:
                    assert (done.iteration, done.report.stopped) == (4, "until"), (strategy, size)
                    assert done.state["count"].numpy().tolist() == [0, 0, 0, 27, 9, 3, 1, 0]

    def test_iterations_count_the_rounds_of_a_queue(self, device: Device, cache: ProgramCache) -> None:
        for strategy in self.strategies(device):
            for rounds in range(5):
                with run(cache, tree(6, 3), rounds, strategy) as done:
                    assert done.iteration == rounds
                    assert done.state["count"].numpy().tolist()[::-1] == [
                        0,
                        *(3**k if k < rounds else 0 for k in range(7)),
                    ]
