"""Tasks in the background: bounded, tried again, flushed and closed in time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import pytest

from kernelkeep.cache.background import BackgroundTasks, Task

LONG_SECONDS = 60.0


class Recorder:
    def __init__(self) -> None:
        self.ran: list[str] = []
        self.dropped: list[str] = []

    def task(
        self,
        name: str,
        run: Callable[[], float | None] = lambda: None,
        *,
        key: str = "",
        group: str = "",
        nbytes: int = 0,
    ) -> Task:
        def record() -> float | None:
            self.ran.append(name)
            return run()

        return Task(key or name, record, lambda: self.dropped.append(name), group=group, nbytes=nbytes)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


def hold(tasks: BackgroundTasks, recorder: Recorder) -> threading.Event:
    """Keep the thread busy until the event is set."""
    begun, end = threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        end.wait(LONG_SECONDS)

    tasks.add(recorder.task("holds the thread", run))
    assert begun.wait(LONG_SECONDS)
    return end


def test_tasks_run_in_order_and_flush_waits(recorder: Recorder) -> None:
    tasks = BackgroundTasks()
    assert tasks.flush(0)
    for number in range(20):
        assert tasks.add(recorder.task(str(number)))
    assert tasks.flush(LONG_SECONDS)
    assert recorder.ran == [str(number) for number in range(20)] and not recorder.dropped


def test_a_full_queue_drops_and_says_so(recorder: Recorder) -> None:
    tasks = BackgroundTasks(most_tasks=2, most_bytes=100)
    end = hold(tasks, recorder)
    assert tasks.add(recorder.task("a", nbytes=60))
    assert not tasks.add(recorder.task("too many bytes", nbytes=60))
    assert tasks.add(recorder.task("b", nbytes=10))
    assert not tasks.add(recorder.task("too many"))
    assert tasks.add(recorder.task("newer a", key="a", nbytes=60)), "it takes the place of the earlier one"
    end.set()
    assert tasks.flush(LONG_SECONDS)
    assert recorder.ran == ["holds the thread", "b", "newer a"] and recorder.dropped == ["too many bytes", "too many"]


def test_one_that_fails_is_tried_again_and_keeps_nobody_waiting(recorder: Recorder) -> None:
    tasks, answers = BackgroundTasks(), [0.05, 0.05, None]
    tasks.add(recorder.task("a", lambda: answers.pop(0)))
    tasks.add(recorder.task("b"))
    deadline = time.monotonic() + LONG_SECONDS
    while recorder.ran.count("a") < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert recorder.ran.index("b") == 1 and tasks.flush(LONG_SECONDS)


def test_one_that_keeps_failing_is_dropped(recorder: Recorder) -> None:
    tasks = BackgroundTasks()
    tasks.add(recorder.task("a", lambda: 0.001))
    deadline = time.monotonic() + LONG_SECONDS
    while not recorder.dropped:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert recorder.dropped == ["a"] and tasks.flush(LONG_SECONDS)


def test_flush_does_not_wait_for_what_is_tried_later(recorder: Recorder) -> None:
    tasks = BackgroundTasks()
    tasks.add(recorder.task("a", lambda: 1000.0))
    begun = time.monotonic()
    assert not tasks.flush(LONG_SECONDS) and time.monotonic() - begun < LONG_SECONDS / 2
    tasks.close(LONG_SECONDS)
    assert recorder.dropped == ["a"]
    assert not tasks.add(recorder.task("late")) and recorder.dropped == ["a", "late"]


def test_close_does_not_wait_for_one_that_hangs(recorder: Recorder) -> None:
    tasks = BackgroundTasks()
    end = hold(tasks, recorder)
    tasks.add(recorder.task("a"))
    begun = time.monotonic()
    tasks.close(0.05)
    assert time.monotonic() - begun < LONG_SECONDS / 2 and recorder.dropped == ["a"]
    end.set()


def test_flush_waits_as_long_as_tasks_are_done_and_not_for_one_that_hangs(recorder: Recorder) -> None:
    tasks = BackgroundTasks()
    for number in range(8):
        tasks.add(recorder.task(str(number), lambda: time.sleep(0.2)))
    assert tasks.flush(LONG_SECONDS, stalled_seconds=LONG_SECONDS / 2) and len(recorder.ran) == 8
    end = hold(tasks, recorder)
    begun = time.monotonic()
    assert not tasks.flush(LONG_SECONDS, stalled_seconds=0.05) and time.monotonic() - begun < LONG_SECONDS / 2
    end.set()


def test_callbacks_come_after_the_tasks_of_their_group(recorder: Recorder) -> None:
    tasks = BackgroundTasks()
    tasks.after("group", lambda: recorder.ran.append("at once"))
    end = hold(tasks, recorder)
    tasks.add(recorder.task("a", lambda: 1000.0, group="group"))
    tasks.add(recorder.task("b", group="group"))
    tasks.add(recorder.task("c"))
    tasks.after("group", lambda: recorder.ran.append("after"))
    end.set()
    tasks.flush(LONG_SECONDS)
    assert recorder.ran == ["at once", "holds the thread", "a", "b", "after", "c"]
    end = hold(tasks, recorder)
    tasks.add(recorder.task("d", group="other"))
    tasks.after("other", lambda: recorder.ran.append("after closing"))
    tasks.close(0.01)
    assert recorder.ran[-1] == "after closing"
    end.set()


def test_a_forked_child_does_its_own(recorder: Recorder) -> None:
    tasks = BackgroundTasks()
    end = hold(tasks, recorder)
    tasks.add(recorder.task("the parent's"))
    child = os.fork()
    if child == 0:
        recorder.ran.clear()
        tasks.add(recorder.task("the child's"))
        os._exit(0 if tasks.flush(LONG_SECONDS) and recorder.ran == ["the child's"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    end.set()
    assert tasks.flush(LONG_SECONDS) and recorder.ran[-1] == "the parent's"
