"""Who completes a batch: whoever waits for it, or the executor's thread."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelkeep as kk
from kernelkeep.execution import arrivals
from kernelkeep.execution.arrivals import Arrivals
from kernelkeep.execution.batch_future import BatchFuture
from kernelkeep.testing import FakeDevice

TIMEOUT = 30.0
TRIPLE = kk.PortableKernel(
    "triple",
    params=[kk.Buffer("x", "i4", "r"), kk.Buffer("y", "i4", "w"), kk.Scalar("by", "i4")],
    body="int i = kk_global_id(0);\ny[i] = by * x[i];",
    group=16,
)


class Flight:
    """A batch that arrives when a test says so."""

    def __init__(self, arrivals: Arrivals, number: int) -> None:
        self.future = BatchFuture(arrivals)
        self.number = number
        self.here = threading.Event()
        self.future.set_running_or_notify_cancel()

    def arrives_before(self, deadline: float, behind: int = 0) -> bool:
        return self.here.wait(max(0.0, deadline - time.perf_counter()) if deadline else 0.0)


class Airport:
    """Arrivals, and what was completed in which thread."""

    def __init__(self) -> None:
        self.completed: list[tuple[int, str]] = []
        self.pressed = False
        self.arrivals = Arrivals(self.complete, lambda: self.pressed)  # type: ignore[arg-type]

    def complete(self, flight: Flight, in_thread: bool) -> bool:
        if in_thread:
            assert flight.here.wait(TIMEOUT)
            flight.future.settle(flight.number, None)
        elif not flight.future.settle_quietly(flight.number, None):
            return False
        self.completed.append((flight.number, threading.current_thread().name))
        return True

    def flights(self, count: int, *, here: bool = True) -> list[Flight]:
        made = [Flight(self.arrivals, number) for number in range(count)]
        for flight in made:
            if here:
                flight.here.set()
            self.arrivals.add(flight)  # type: ignore[arg-type]
        return made


@pytest.fixture
def airport() -> Iterator[Airport]:
    made = Airport()
    yield made
    made.arrivals.close()


@pytest.fixture
def lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor's thread looks once a minute, unless it is woken."""
    monkeypatch.setattr("kernelkeep.execution.arrivals._LOOK_SECONDS", 60.0)


@pytest.mark.usefixtures("lazy")
def test_who_waits_for_a_result_completes_it_and_those_before(airport: Airport) -> None:
    flights = airport.flights(3)
    assert flights[1].future.result() == 1
    here = threading.current_thread().name
    assert airport.completed == [(0, here), (1, here)], "in order, and not the one behind"
    assert flights[2].future.result(TIMEOUT) == 2 and flights[0].future.result(0) == 0


def test_what_nobody_waits_for_is_completed_as_well(airport: Airport) -> None:
    (flight,) = airport.flights(1)
    deadline = time.monotonic() + TIMEOUT
    while not airport.completed and time.monotonic() < deadline:
        time.sleep(0.001)
    assert airport.completed == [(0, "kernelkeep-executor")]
    assert flight.future.done()


@pytest.mark.usefixtures("lazy")
def test_a_batch_that_does_not_arrive_soon_is_left_to_the_thread(airport: Airport) -> None:
    (flight,) = airport.flights(1, here=False)
    with pytest.raises(concurrent.futures.TimeoutError):
        flight.future.result(0.01)
    threading.Timer(0.05, flight.here.set).start()
    assert flight.future.result(TIMEOUT) == 0
    assert airport.completed == [(0, "kernelkeep-executor")]


@pytest.mark.usefixtures("lazy")
def test_done_sees_what_has_arrived(airport: Airport) -> None:
    (flight,) = airport.flights(1, here=False)
    assert not flight.future.done()
    flight.here.set()
    assert flight.future.done()


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize("way", ["wait", "as_completed", "callback"])
def test_those_who_sleep_until_it_is_done_wake_the_thread(airport: Airport, way: str) -> None:
    flights = airport.flights(3)
    futures = [flight.future for flight in flights]
    if way == "wait":
        assert len(concurrent.futures.wait(futures, TIMEOUT).done) == 3
    elif way == "as_completed":
        assert sorted(done.result() for done in concurrent.futures.as_completed(futures, TIMEOUT)) == [0, 1, 2]
    else:
        called = threading.Event()
        futures[2].add_done_callback(lambda _: called.set())
        assert called.wait(TIMEOUT)
    assert airport.completed[-1] == (2, "kernelkeep-executor")


@pytest.mark.usefixtures("lazy")
def test_a_callback_may_need_a_lock_that_who_waits_holds(airport: Airport) -> None:
    lock, called = threading.Lock(), threading.Event()

    def call_back(_: Any) -> None:
        with lock:
            called.set()

    (flight,) = airport.flights(1)
    with lock:
        flight.future.add_done_callback(call_back)
        assert flight.future.result(TIMEOUT) == 0
    assert called.wait(TIMEOUT)


@pytest.mark.usefixtures("lazy")
def test_a_callback_added_while_somebody_completes_the_batch_runs_elsewhere(airport: Airport) -> None:
    (flight,) = airport.flights(1)
    callers: list[str] = []
    settle_quietly = flight.future.settle_quietly

    def with_a_callback(results: Any, problem: BaseException | None) -> bool:
        flight.future.add_done_callback(lambda _: callers.append(threading.current_thread().name))
        return settle_quietly(results, problem)

    flight.future.settle_quietly = with_a_callback  # type: ignore[method-assign]
    assert flight.future.result(TIMEOUT) == 0
    airport.arrivals.close()
    assert callers == ["kernelkeep-executor"]


@pytest.mark.usefixtures("lazy")
def test_only_a_batch_that_is_first_is_completed_by_who_sent_it(airport: Airport) -> None:
    first, second = airport.flights(2)
    airport.arrivals.complete_only(second)  # type: ignore[arg-type]
    assert not airport.completed, "results come in order"
    airport.arrivals.look()
    (third,) = airport.flights(1)
    airport.arrivals.complete_only(third)  # type: ignore[arg-type]
    assert len(airport.completed) == 3 and third.future.done() and first.future.result(0) == 0


def test_the_thread_looks_ever_more_rarely_while_nothing_is_left_to_it(
    airport: Airport, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    monkeypatch.setattr(Flight, "arrives_before", lambda *_: looks.append(time.monotonic()))
    (flight,) = airport.flights(1, here=False)
    time.sleep(0.6)
    assert 1 <= len(looks) <= 15, "0.6 s would have room for 150 looks"
    flight.here.set()
    assert flight.future.result(TIMEOUT) == 0


def test_idling_does_not_make_the_pauses_longer(airport: Airport, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    class Bell:
        """Of the thread. It has nothing to do when it asks."""

        def acquire(self, timeout: float = -1) -> bool:
            pauses.append(timeout)
            return False if timeout >= 0 else rung.acquire()

        def release(self) -> None:
            rung.release()

    rung = airport.arrivals._bell
    monkeypatch.setattr(airport.arrivals, "_bell", Bell())
    (flight,) = airport.flights(1)
    assert flight.future.result(TIMEOUT) == 0
    deadline = time.monotonic() + TIMEOUT
    while -1 not in pauses and time.monotonic() < deadline:
        time.sleep(0.001)
    assert set(pauses) == {arrivals._LOOK_SECONDS, -1}, "and then it sleeps until it is woken"


@pytest.mark.parametrize("also_waits", [False, True])
def test_a_future_without_a_condition_is_settled_once_whoever_asks_meanwhile(
    airport: Airport, also_waits: bool
) -> None:
    def settle(number: int) -> None:
        future, called = BatchFuture(airport.arrivals), []
        future.begin()

        def ask() -> None:
            future.add_done_callback(lambda done: called.append(done.result()))

        def wait() -> None:
            called.append(concurrent.futures.Future.result(future, TIMEOUT))

        asking = [threading.Thread(target=one) for one in ([ask, wait] if also_waits else [ask])]
        for thread in asking:
            thread.start()
        if not future.settle_quietly({"y": number}, None):
            future.settle({"y": number}, None)  # what the executor's thread does: it calls back
        for thread in asking:
            thread.join(TIMEOUT)
        assert called == [{"y": number}] * len(asking) and future.result(0) == {"y": number}

    for number in range(200):
        settle(number)


def test_many_threads_wait_for_results_of_each_other(airport: Airport) -> None:
    flights = airport.flights(40)
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda one=one: seen.append(one.future.result(TIMEOUT))) for one in flights[::-1]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert sorted(seen) == list(range(40))
    assert [number for number, _ in airport.completed] == list(range(40)), "in order"


# --- in an executor


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice() as opened:
        yield opened


@pytest.fixture
def job(device: FakeDevice, tmp_path: Path) -> Iterator[kk.Job]:
    with kk.ProgramCache(device, tmp_path / "cache") as cache:
        yield kk.Job(cache, TRIPLE, grid=1, outputs={"y": ((16,), "i4")})


def test_ctrl_c_while_a_result_is_made_is_the_error_of_that_batch(
    device: FakeDevice, job: kk.Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelkeep.execution.dispatcher import Dispatcher

    x, whole = np.ones(16, "i4"), Dispatcher.results
    with kk.Executor(device, depth=1) as executor:
        for _ in range(3):
            executor.submit(job, x=x, by=3).result()
        interrupted = threading.Event()

        def interrupt(self: Dispatcher, submission: Any) -> Any:
            if threading.current_thread() is threading.main_thread() and not interrupted.is_set():
                interrupted.set()
                raise KeyboardInterrupt
            return whole(self, submission)

        monkeypatch.setattr(Dispatcher, "results", interrupt)
        while not interrupted.is_set():
            future = executor.submit(job, x=x, by=3)
            try:
                future.result()
            except KeyboardInterrupt:
                assert isinstance(future.exception(), KeyboardInterrupt)
        for _ in range(3):  # its slot and its room are free again
            assert (executor.submit(job, x=x, by=3).result()["y"] == 3).all()


def test_a_burst_of_batches_comes_back_in_order(device: FakeDevice, job: kk.Job) -> None:
    with kk.Executor(device, depth=2) as executor:
        futures = [executor.submit(job, x=np.full(16, number, "i4"), by=3) for number in range(50)]
        assert [int(future.result()["y"][0]) for future in futures] == [3 * number for number in range(50)]
        assert [span.batch for span in executor.timeline.spans if span.engine == "compute"] == list(range(50))
