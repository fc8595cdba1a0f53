"""Whose turn it is to complete batches: never that of a thread that Ctrl-C took out of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from kernelkeep.execution.arrivals import Arrivals
from kernelkeep.execution.batch_future import BatchFuture
from kernelkeep.execution.submission import Submission


class _Interrupted:
    """A lock with which Ctrl-C comes when it was taken, before the caller knows."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.release = lock.release

    def acquire(self, **how: Any) -> bool:
        self._lock.acquire(**how)
        raise KeyboardInterrupt


def _is_free(lock: Any) -> bool:
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(lock.acquire(blocking=False)))
    thread.start()
    thread.join()
    return found == [True]


@pytest.mark.parametrize(
    "use",
    [
        lambda arrivals: BatchFuture(arrivals).result(1.0),
        lambda arrivals: arrivals.make_way(lambda: False, 0.1),
        lambda arrivals: arrivals.complete_only(arrivals._under_way[0]),
    ],
    ids=["result", "make_way", "complete_only"],
)
def test_ctrl_c_leaves_no_turn_behind(use: Callable[[Arrivals], object]) -> None:
    arrivals = Arrivals(lambda submission, in_thread: True, lambda: False)
    arrivals._under_way.append(cast(Submission, object()))
    lock = arrivals._turn
    arrivals._turn = cast(Any, _Interrupted(lock))
    with pytest.raises(KeyboardInterrupt):
        use(arrivals)
    assert _is_free(lock)


def test_a_handler_in_the_middle_of_a_turn_does_not_take_it_again() -> None:
    arrivals = Arrivals(lambda submission, in_thread: pytest.fail("a turn inside a turn"), lambda: False)
    arrivals._under_way.append(cast(Submission, object()))
    with arrivals._turn:
        arrivals._helper = threading.get_ident()
        assert arrivals.help(BatchFuture(arrivals), 0.5) == 0.5
        arrivals.look()
        arrivals.complete_only(arrivals._under_way[0])
        assert not _is_free(arrivals._turn)
    assert _is_free(arrivals._turn)
