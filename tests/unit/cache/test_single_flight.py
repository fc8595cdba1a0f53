"""`Flights`: threads that ask for the same key share one piece of work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import kernelkeep as kk
from kernelkeep.cache.single_flight import Flights


def wait_until(condition: Callable[[], bool], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.002)


class Waiting:
    """Some threads that join the flight of one key while its leader is held up."""

    def __init__(self, flights: Flights[str], number: int, error: BaseException | None = None) -> None:
        self.calls = 0
        self.results: list[object] = []
        self.go = threading.Event()
        self.error = error
        self._flights = flights
        self._joined = 0
        self.threads = [threading.Thread(target=self._join) for _ in range(number)]
        self.threads[0].start()
        wait_until(lambda: self.calls == 1)
        for thread in self.threads[1:]:
            thread.start()
        wait_until(lambda: self._joined == number)

    def _join(self) -> None:
        self._joined += 1
        try:
            self.results.append(self._flights.join("key", self._work))
        except BaseException as error:
            self.results.append(error)

    def _work(self) -> str:
        self.calls += 1
        if self.calls == 1:
            self.go.wait(10)
            if self.error is not None:
                raise self.error
        return f"result of call {self.calls}"

    def finish(self) -> list[object]:
        time.sleep(0.05)  # the last one to join is between its count and its wait
        self.go.set()
        for thread in self.threads:
            thread.join(10)
        return self.results


def test_one_thread_works_and_all_get_its_result() -> None:
    waiting = Waiting(Flights(), 16)
    results = waiting.finish()
    assert waiting.calls == 1
    assert sorted(results, key=str) == [("result of call 1", False)] * 15 + [("result of call 1", True)]


def test_an_error_reaches_everyone_and_is_not_kept() -> None:
    flights: Flights[str] = Flights()
    error = kk.CompileError("no", log="the log", line=3)
    waiting = Waiting(flights, 16, error)
    results = waiting.finish()
    assert waiting.calls == 1 and results == [error] * 16
    assert flights.join("key", lambda: "fine") == ("fine", True)


def test_a_waiter_takes_over_from_an_interrupted_thread() -> None:
    flights: Flights[str] = Flights()
    interrupt = KeyboardInterrupt()
    waiting = Waiting(flights, 8, interrupt)
    results = waiting.finish()
    assert results.count(interrupt) == 1, "the interrupt is the leader's own affair"
    others = [result for result in results if result is not interrupt]
    assert len(others) == 7
    assert all(isinstance(result, tuple) and str(result[0]).startswith("result of call") for result in others)


def test_different_keys_are_worked_on_at_the_same_time() -> None:
    flights: Flights[int] = Flights()
    together = threading.Barrier(8)

    def work() -> int:
        return together.wait(5)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: flights.join(str(number), work), range(8)))
    assert {result for result, _ in results} == set(range(8))
    assert all(leading for _, leading in results)


def test_finished_work_is_forgotten() -> None:
    flights: Flights[int] = Flights()
    assert [flights.join("key", lambda n=n: n) for n in range(3)] == [(0, True), (1, True), (2, True)]  # type: ignore[misc]
    assert not flights._flying


def test_a_thread_that_waited_long_enough_does_the_work_itself() -> None:
    flights: Flights[str] = Flights()
    stuck, started = threading.Event(), threading.Event()

    def never() -> str:
        started.set()
        stuck.wait(30)
        return "late"

    with ThreadPoolExecutor(1) as pool:
        leader = pool.submit(flights.join, "key", never)
        started.wait(10)
        before = time.monotonic()
        assert flights.join("key", lambda: "mine", 0.2) == ("mine", True)
        assert 0.15 < time.monotonic() - before < 10
        stuck.set()
        assert leader.result() == ("late", True)


def test_a_result_is_held_for_each_thread_and_until_the_last_has_its_own() -> None:
    held, least = [0], [1]

    def change(by: int) -> None:
        with counting:
            held[0] += by
            least.append(held[0])

    counting = threading.Lock()
    flights: Flights[str] = Flights(hold=lambda _: change(1), drop=lambda _: change(-1))

    def work() -> str:
        change(1)
        assert go.wait(10)
        return "result"

    def join(_: int) -> str:
        result, leading = flights.join("key", work)
        if leading:
            change(-1)  # the first to have it is the first to give it back
        return result

    go = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(join, range(8))
        wait_until(lambda: flights.waiting("key") == 7)
        go.set()
        assert list(results) == ["result"] * 8
    assert held == [7], "each of the others has its own, and none is left over"
    assert min(least) > 0, "at no time did nobody hold it"


def test_threads_that_gave_up_waiting_hold_what_they_made_themselves() -> None:
    held: list[str] = []
    flights: Flights[str] = Flights(hold=held.append, drop=held.remove)
    go, begun = threading.Event(), threading.Event()

    def work() -> str:
        held.append("slow")
        begun.set()
        assert go.wait(10)
        return "slow"

    def quick() -> str:
        held.append("quick")
        return "quick"

    thread = threading.Thread(target=flights.join, args=("key", work))
    thread.start()
    assert begun.wait(10)
    assert flights.join("key", quick, 0.01) == ("quick", True)
    go.set()
    thread.join(10)
    assert sorted(held) == ["quick", "slow"]
