"""One at a time: the lock between processes, and the flights within one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import kernelkeep as kk
from kernelkeep.cache.single_flight import Flights
from kernelkeep.storage.locks import FileLock, LockUnavailable
from kernelkeep.testing import run_python

HOLDER = """
import sys, time
from pathlib import Path
from kernelkeep.storage.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire(10)
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


@contextmanager
def holder(path: Path, script: str = HOLDER) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its standard input ends."""
    package = str(Path(kk.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": package},
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().strip() == "held"
            yield child
        finally:
            child.kill()


def test_it_is_exclusive_within_a_process(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with FileLock(path).held(1):
        with pytest.raises(LockUnavailable, match="still held"):
            FileLock(path).acquire(0.05)
    FileLock(path).acquire(0)


def test_it_is_exclusive_between_processes(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holder(path) as child:
        with pytest.raises(LockUnavailable):
            FileLock(path).acquire(0.1)
        child.communicate("")
        assert child.returncode == 0
        with FileLock(path).held(1):
            pass


def test_killing_the_holder_frees_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holder(path) as child:
        lock = FileLock(path)
        waiting = threading.Thread(target=lock.acquire, args=(10,))
        waiting.start()
        time.sleep(0.1)
        assert waiting.is_alive()
        child.send_signal(signal.SIGKILL)
        started = time.monotonic()
        waiting.join(5)
        assert time.monotonic() - started < 1
        lock.release()
    assert not list(tmp_path.iterdir())


def test_the_file_goes_with_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.lock"
    with FileLock(path).held(1):
        assert path.exists()
        assert path.stat().st_mode & 0o777 == 0o600
    assert not list(path.parent.iterdir())


def test_releasing_what_is_not_held_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with FileLock(path).held(1):
        FileLock(path).release()
        assert path.exists()


def test_a_file_left_by_a_crash_blocks_nobody(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    path.write_bytes(b"")
    with FileLock(path).held(0):
        pass
    assert not path.exists()


def test_a_lock_whose_file_was_deleted_is_not_given_twice(tmp_path: Path) -> None:
    """The holder still holds its old file; a newcomer makes a new one; the two never share one path's lock."""
    path = tmp_path / "a.lock"
    first, second, third = FileLock(path), FileLock(path), FileLock(path)
    first.acquire(0)
    path.unlink()
    second.acquire(0)
    with pytest.raises(LockUnavailable):
        third.acquire(0.02)
    second.release()


@pytest.mark.parametrize("obstacle", ["folder", "link", "file as parent"])
def test_where_no_lock_can_be_had_it_says_so(tmp_path: Path, obstacle: str) -> None:
    path = tmp_path / "a.lock"
    if obstacle == "folder":
        path.mkdir()
    elif obstacle == "link":
        path.symlink_to(tmp_path / "elsewhere")
    else:
        (tmp_path / "file").write_text("")
        path = tmp_path / "file" / "a.lock"
    with pytest.raises(LockUnavailable):
        FileLock(path).acquire(5)
    assert not (tmp_path / "elsewhere").exists()


FORKING = """
import os, sys, time
from pathlib import Path
from kernelkeep.storage.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire(10)
if os.fork() == 0:
    lock.release()  # a child that unwinds its parent's block
    assert Path(sys.argv[1]).exists()
    time.sleep(5)
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_forked_child_keeps_no_lock_of_its_killed_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with holder(path, FORKING) as parent:
        time.sleep(0.2)
        with pytest.raises(LockUnavailable):
            FileLock(path).acquire(0)
        parent.kill()
        parent.wait()
        with FileLock(path).held(1):
            pass


COUNT = """
import sys
from pathlib import Path
from kernelkeep.storage.locks import FileLock
lock, counter = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(100):
    with FileLock(lock).held(60):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


def test_no_two_processes_are_ever_inside(tmp_path: Path) -> None:
    lock, counter = tmp_path / "locks" / "a.lock", tmp_path / "counter"
    counter.write_text("0")
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: run_python(COUNT, lock, counter), range(6)))
    assert counter.read_text() == "600"
    assert not list(lock.parent.iterdir())


# --- flights


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


def test_one_leads_and_all_get_its_result() -> None:
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


def test_an_interrupted_leader_is_replaced_by_one_of_the_waiters() -> None:
    flights: Flights[str] = Flights()
    interrupt = KeyboardInterrupt()
    waiting = Waiting(flights, 8, interrupt)
    results = waiting.finish()
    assert results.count(interrupt) == 1, "the interrupt is the leader's own affair"
    others = [result for result in results if result is not interrupt]
    assert len(others) == 7
    assert all(isinstance(result, tuple) and str(result[0]).startswith("result of call") for result in others)


def test_different_keys_fly_at_the_same_time() -> None:
    flights: Flights[int] = Flights()
    together = threading.Barrier(8)

    def work() -> int:
        return together.wait(5)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: flights.join(str(number), work), range(8)))
    assert {result for result, _ in results} == set(range(8))
    assert all(leading for _, leading in results)


def test_landed_flights_are_forgotten() -> None:
    flights: Flights[int] = Flights()
    assert [flights.join("key", lambda n=n: n) for n in range(3)] == [(0, True), (1, True), (2, True)]  # type: ignore[misc]
    assert not flights._flying


def test_who_has_waited_long_enough_does_the_work_itself() -> None:
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
