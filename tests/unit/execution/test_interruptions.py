"""Ctrl-C in any moment of a batch: the slots, the room and the other batches are as before."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.execution.arrivals import Arrivals
from kernelkeep.execution.backlog import Backlog
from kernelkeep.execution.batch_future import BatchFuture
from kernelkeep.execution.dispatcher import Dispatcher
from kernelkeep.execution.engine import Engine
from kernelkeep.execution.submission import Submission
from kernelkeep.testing import FakeDevice

TIMEOUT = 10.0
WARM = 6  # batches after which memory and launch are kept
TRIPLE = kk.PortableKernel(
    "triple",
    params=[kk.Buffer("x", "i4", "r"), kk.Buffer("y", "i4", "w"), kk.Scalar("by", "i4")],
    body="int i = kk_global_id(0);\ny[i] = by * x[i];",
    group=16,
)


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


@pytest.fixture
def job(device: FakeDevice, tmp_path: Path) -> Iterator[kk.Job]:
    with kk.ProgramCache(device, tmp_path / "cache") as cache:
        yield kk.Job(cache, TRIPLE, grid=1, outputs={"y": ((16,), "i4")})


@pytest.fixture
def executor(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> Iterator[kk.Executor]:
    # The main thread completes its batches, however long they take.
    monkeypatch.setattr("kernelkeep.execution.arrivals._LOOK_SECONDS", 60.0)
    for module in ("arrivals", "submission"):
        monkeypatch.setattr(f"kernelkeep.execution.{module}.PATIENCE_SECONDS", math.inf)
    made = kk.Executor(device, depth=1)
    yield made
    monkeypatch.undo()
    made.close(timeout=TIMEOUT)
    assert made._engine.accepted == 0


def interrupt(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool = False, enough: int = 1
) -> Callable[[], bool]:
    """Have a call of the main thread raise Ctrl-C, once, before it does anything or right after; whether it did."""
    whole = getattr(owner, name)
    left = [enough]

    def call(*args: Any, **how: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() or not left[0]:
            return whole(*args, **how)
        left[0] -= 1
        if after:
            whole(*args, **how)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, call)
    return lambda: not left[0]


def triple(executor: kk.Executor, job: kk.Job, number: int) -> Future[Any]:
    return executor.submit(job, x=np.full(16, number, "i4"), by=3)


def check(executor: kk.Executor, job: kk.Job) -> None:
    """More batches than there are slots and room."""
    for number in range(WARM):
        assert (triple(executor, job, number).result(TIMEOUT)["y"] == 3 * number).all()
    futures = [triple(executor, job, number) for number in range(4)]
    assert [int(future.result(TIMEOUT)["y"][0]) for future in futures] == [0, 3, 6, 9]


def warm_up(executor: kk.Executor, job: kk.Job, batches: int) -> None:
    for _ in range(batches):
        triple(executor, job, 1).result(TIMEOUT)


@pytest.mark.parametrize("batches", [0, WARM], ids=["first", "alike"])
@pytest.mark.parametrize(
    ("owner", "name"), [(Submission, "note_pace"), (Dispatcher, "results"), (Backlog, "free"), (Engine, "_receive")]
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interruption_while_a_batch_is_completed_loses_no_slot(
    executor: kk.Executor,
    job: kk.Job,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    after: bool,
    batches: int,
) -> None:
    warm_up(executor, job, batches)
    was_interrupted = interrupt(monkeypatch, owner, name, after)
    future = triple(executor, job, 1)
    with pytest.raises(KeyboardInterrupt):
        future.result(TIMEOUT)
    assert was_interrupted() and isinstance(future.exception(TIMEOUT), KeyboardInterrupt)
    check(executor, job)


@pytest.mark.parametrize(
    ("owner", "name", "batches"),
    [
        (Submission, "stage", 0), (Engine, "_accept", 0), (BatchFuture, "begin", 0), (Arrivals, "_start", 0),
        (Arrivals, "add", 0), (Backlog, "add", 0), (BatchFuture, "begin", WARM), (Backlog, "add", WARM),
        (Backlog, "_send", WARM), (Dispatcher, "send", WARM), (Arrivals, "add", WARM),
    ],
)  # fmt: skip
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interruption_while_a_batch_is_taken_loses_no_room(
    executor: kk.Executor,
    job: kk.Job,
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    after: bool,
    batches: int,
) -> None:
    warm_up(executor, job, batches)
    with monkeypatch.context() as patch:
        was_interrupted = interrupt(patch, owner, name, after)
        with contextlib.suppress(KeyboardInterrupt):
            triple(executor, job, 1).result(TIMEOUT)
    assert was_interrupted()
    check(executor, job)


class Lock:
    """A lock that Ctrl-C comes at, once, while another thread has it or when it was given back."""

    def __init__(self, lock: Any, *, after: bool) -> None:
        self._lock, self._after, self.left = lock, after, 1

    def __enter__(self) -> None:
        if self.left and not self._after:
            self.left = 0
            raise KeyboardInterrupt
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
        if self.left:
            self.left = 0
            raise KeyboardInterrupt


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interruption_while_room_is_waited_for(executor: kk.Executor, job: kk.Job, after: bool) -> None:
    engine = executor._engine
    lock, engine._lock = engine._lock, Lock(engine._lock, after=after)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        triple(executor, job, 1)
    engine._lock = lock
    check(executor, job)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_interruption_while_room_is_made(
    executor: kk.Executor, job: kk.Job, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    engine = executor._engine
    lock, whole = engine._lock, BatchFuture.settle_quietly

    def settle(self: BatchFuture, *outcome: Any) -> bool:
        engine._lock = Lock(lock, after=after)  # type: ignore[assignment]
        return whole(self, *outcome)

    future = triple(executor, job, 2)
    monkeypatch.setattr(BatchFuture, "settle_quietly", settle)
    with pytest.raises(KeyboardInterrupt):
        future.result(TIMEOUT)
    monkeypatch.setattr(BatchFuture, "settle_quietly", whole)
    engine._lock = lock
    assert future.result(TIMEOUT)["y"][0] == 6, "it was done"
    check(executor, job)


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["waits", "was cancelled"])
def test_a_batch_behind_another_that_is_interrupted_when_it_is_sent_says_so(
    device: FakeDevice, executor: kk.Executor, job: kk.Job, monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    warm_up(executor, job, WARM)
    hang = device.faults.hang("run")
    first = triple(executor, job, 1)
    hang.wait_until_reached()
    # As `map` submits: its caller is about to wait for a result, so the executor's thread need not send it.
    second = executor._engine.submit(job, {"x": np.full(16, 2, "i4"), "by": 3}, relaxed=True)
    if is_cancelled:
        assert second.cancel()
    with monkeypatch.context() as patch:
        was_interrupted = interrupt(patch, BatchFuture, "set_running_or_notify_cancel")
        hang.release()
        with pytest.raises(KeyboardInterrupt):
            first.result(TIMEOUT)
        assert was_interrupted()
    assert second.cancelled() if is_cancelled else isinstance(second.exception(TIMEOUT), KeyboardInterrupt)
    check(executor, job)
