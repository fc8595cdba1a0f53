"""Calls with a deadline: the caller goes on in time, threads are bounded, nothing keeps the interpreter or a child."""

from __future__ import annotations

import os
import threading
import time

import pytest

from kernelkeep.remote.deadline import DeadlineExceeded, DeadlineThreads, in_parallel
from kernelkeep.testing import run_python


def test_results_and_exceptions_come_back() -> None:
    threads = DeadlineThreads()
    assert threads.call(lambda: 5, 10) == 5
    with pytest.raises(ValueError, match="invalid literal"):
        threads.call(lambda: int("a"), 10)
    assert threads.busy == 0


def test_one_thread_serves_calls_one_after_the_other() -> None:
    threads = DeadlineThreads()
    assert len({threads.call(threading.get_ident, 10) for _ in range(50)}) == 1


def test_the_caller_goes_on_and_hanging_calls_are_bounded() -> None:
    threads, end = DeadlineThreads(most=2), threading.Event()
    begun = time.monotonic()
    for _ in range(2):
        with pytest.raises(DeadlineExceeded, match="no answer within"):
            threads.call(end.wait, 0.05)
    for _ in range(20):
        with pytest.raises(DeadlineExceeded, match="2 earlier calls"):
            threads.call(end.wait, 30)
    assert time.monotonic() - begun < 20, "calls that have no thread fail at once"
    assert threads.busy == 2
    end.set()
    while threads.busy:
        time.sleep(0.001)
    assert threads.call(lambda: 1, 10) == 1


def test_many_threads_call_at_once() -> None:
    threads = DeadlineThreads(most=4)
    assert in_parallel(lambda number: threads.call(lambda: number * 2, 60), range(4), 4) == [0, 2, 4, 6]


def test_in_parallel_keeps_the_order_and_raises_the_first_error() -> None:
    assert in_parallel(lambda number: number * number, range(100)) == [number * number for number in range(100)]
    assert in_parallel(str, []) == []
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda number: 1 // number, [1, 0, 2])


def test_a_hanging_call_does_not_keep_the_interpreter() -> None:
    code = """
import threading
from kernelkeep.remote.deadline import DeadlineExceeded, DeadlineThreads
try:
    DeadlineThreads().call(threading.Event().wait, 0.05)
except DeadlineExceeded:
    print("went on")
"""
    assert "went on" in run_python(code).stdout


def test_a_forked_child_has_threads_of_its_own() -> None:
    threads, end = DeadlineThreads(most=1), threading.Event()
    with pytest.raises(DeadlineExceeded):
        threads.call(end.wait, 0.01)
    child = os.fork()
    if child == 0:
        os._exit(0 if threads.call(lambda: 7, 30) == 7 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    end.set()
