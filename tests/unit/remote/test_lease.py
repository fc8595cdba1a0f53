"""Leases in real stores: one holder, take-over when it dies, and a holder that comes back too late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernelkeep.remote.address import Remote, open_store
from kernelkeep.remote.lease import Record, State, StoreLease
from kernelkeep.remote.store import Store
from kernelkeep.remote.waiting import Outcome, wait_for

SECONDS = 1.0  # a lease's duration here: long enough for a busy machine to renew it in time

HOLDING = """
import sys, time
from kernelkeep.remote.address import Remote, open_store
url, namespace, duration = sys.argv[1], sys.argv[2], float(sys.argv[3])
store = open_store(Remote(url=url, namespace=namespace, timeout_seconds=30))
lease = store.lease("leases/x", duration)
assert lease.attempt() is None
print("held", lease.token, flush=True)
while lease.is_held:
    time.sleep(0.02)
lease.release()
print("lost", flush=True)
"""


class Place:
    """A store that several clients open, each for itself."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url, self.namespace = url, namespace

    def open(self) -> Store:
        return open_store(Remote(url=self.url, namespace=self.namespace, timeout_seconds=30))

    def lease(self, duration_seconds: float = SECONDS) -> StoreLease:
        lease = self.open().lease("leases/x", duration_seconds)
        assert lease is not None
        return lease


@pytest.fixture(params=["redis", "s3"])
def server(request: pytest.FixtureRequest, namespace: str) -> Place:
    """For what takes a while: a folder does what S3 does."""
    return Place(request.getfixturevalue(f"{request.param}_server").url, namespace)


@pytest.fixture(params=["redis", "s3", "file"])
def place(request: pytest.FixtureRequest, namespace: str, tmp_path: Path) -> Place:
    if request.param == "file":
        return Place(tmp_path.as_uri(), namespace)
    return Place(request.getfixturevalue(f"{request.param}_server").url, namespace)


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


def start_holder(place: Place) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDING, place.url, place.namespace, str(SECONDS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held 1\n"
    return process


def test_one_of_many_takes_it(place: Place) -> None:
    leases = [place.lease(30.0) for _ in range(16)]
    together = threading.Barrier(len(leases))

    def take(lease: StoreLease) -> State | None:
        together.wait()
        return lease.attempt()

    with ThreadPoolExecutor(len(leases)) as pool:
        results = list(pool.map(take, leases))
    assert results.count(None) == 1
    assert results.count(State.HELD) == 15
    assert [lease.is_held for lease in leases].count(True) == 1
    next(lease for lease in leases if lease.is_held).release()


def test_it_is_renewed_while_it_is_held_and_free_when_it_is_released(server: Place) -> None:
    first, second = server.lease(), server.lease()
    assert first.attempt() is None
    end = time.monotonic() + 1.6 * SECONDS
    while time.monotonic() < end:
        assert second.attempt() is State.HELD
        time.sleep(0.05)
    assert first.is_held
    first.release()
    assert not first.is_held
    assert second.attempt() is None
    assert second.token > first.token
    assert first.attempt() is State.HELD
    second.release()


def test_it_is_taken_over_from_a_killed_process(server: Place) -> None:
    process = start_holder(server)
    lease = server.lease()
    assert lease.attempt() is State.HELD
    process.kill()
    process.communicate()
    assert wait_for(lease.attempt, lambda: False, 60.0) is Outcome.HELD
    assert lease.token == 2
    lease.release()


def test_a_paused_holder_that_comes_back_leaves_the_next_one_alone(server: Place) -> None:
    process = start_holder(server)
    os.kill(process.pid, signal.SIGSTOP)
    try:
        lease, third = server.lease(), server.lease()
        assert wait_for(lease.attempt, lambda: False, 60.0) is Outcome.HELD
    finally:
        os.kill(process.pid, signal.SIGCONT)
    assert process.communicate(timeout=60)[0] == "lost\n"
    assert lease.renew()
    assert third.attempt() is State.HELD
    lease.release()
    assert third.attempt() is None
    third.release()


def test_waiting_ends_when_the_bytes_are_there(place: Place) -> None:
    holder, waiting = place.lease(30.0), place.lease(30.0)
    assert holder.attempt() is None
    store = place.open()
    timer = threading.Timer(0.1, store.put, ("entry", b"bytes"))
    timer.start()
    assert wait_for(waiting.attempt, lambda: store.get("entry") is not None, 60.0) is Outcome.ARRIVED
    assert not waiting.is_held
    assert wait_for(waiting.attempt, lambda: False, 0.05) is Outcome.LATE
    timer.join()
    holder.release()


def test_only_those_who_waited_learn_that_the_work_failed(place: Place) -> None:
    holder, waiting, newcomer = place.lease(30.0), place.lease(30.0), place.lease(30.0)
    assert holder.attempt() is None
    assert waiting.attempt() is State.HELD
    holder.release(failed=True)
    assert wait_for(waiting.attempt, lambda: False, 60.0) is Outcome.FAILED
    assert wait_for(newcomer.attempt, lambda: False, 60.0) is Outcome.HELD
    newcomer.release()
    assert waiting.attempt() is None
    waiting.release()


@pytest.mark.parametrize("garbage", [b"\xff\x00" * 500, b"held nine abcdef 5000 0"])
def test_what_is_no_record_does_not_block_for_ever(place: Place, garbage: bytes) -> None:
    place.open().put("leases/x", garbage)
    lease = place.lease(0.2)
    assert wait_for(lease.attempt, lambda: False, 60.0) is Outcome.HELD
    lease.release()


def test_an_answer_that_was_lost_does_not_lose_the_lease(place: Place) -> None:
    lease = place.lease(30.0)
    assert lease.attempt() is None
    lost = place.lease(30.0)
    lost.owner = lease.owner  # as if the answer to its first attempt had not arrived
    assert lost.attempt() is None
    assert lost.token == lease.token
    lost.release()
    assert not lease.renew()


def test_a_failing_store_is_given_up_in_time() -> None:
    class Failing(StoreLease):
        calls = 0

        def try_to_take(self) -> State | None:
            self.calls += 1
            if self.calls == 1:
                return State.HELD
            raise OSError("the store is gone")

        def extend(self) -> bool:
            return False

        def give_up(self, state: State) -> None:
            return

    lease = Failing("x")
    with pytest.raises(OSError, match="the store is gone"):
        wait_for(lease.attempt, lambda: False, 60.0)
    assert lease.calls > 2
    with pytest.raises(OSError, match="the store is gone"):  # the very first try is not repeated
        wait_for(lease.attempt, lambda: False, 60.0)


def test_an_attempt_that_nobody_waits_for_any_more_gives_the_lease_back(place: Place) -> None:
    slow, other = place.lease(30.0), place.lease(30.0)
    taking, go_on = threading.Event(), threading.Event()
    take = slow.try_to_take

    def take_slowly() -> State | None:
        taking.set()
        assert go_on.wait(60)
        return take()

    slow.try_to_take = take_slowly  # type: ignore[method-assign]
    thread = threading.Thread(target=slow.attempt)
    thread.start()
    assert taking.wait(60)
    slow.withdraw()
    go_on.set()
    thread.join()
    assert not slow.is_held
    assert other.attempt() is None
    assert other.token > slow.token
    other.withdraw()
    assert not other.is_held
    assert place.lease(30.0).attempt() is None


def test_a_lease_that_is_dropped_is_left_to_run_out(place: Place) -> None:
    lease, other = place.lease(60.0), place.lease(60.0)
    assert lease.attempt() is None
    lease.drop()
    lease.release()
    assert not lease.is_held and not lease.renew()
    assert other.attempt() is State.HELD, "the store was told nothing"


def test_a_store_without_conditional_puts_has_no_lease() -> None:
    assert open_store(Remote(url="http://127.0.0.1:9/")).lease("leases/x") is None


def test_records() -> None:
    record = Record(State.HELD, 7, "abc", 5000, 3)
    assert Record.decode(record.encode()) == record
    assert record.duration_seconds == 5.0
    assert record._replace(duration_ms=10**9).duration_seconds == 60.0
    assert record._replace(duration_ms=-1).duration_seconds == 0.1


def test_a_forked_child_holds_nothing(place: Place) -> None:
    lease = place.lease(30.0)
    assert lease.attempt() is None
    pid = os.fork()
    if pid == 0:
        os._exit(1 if lease.is_held else 0)
    assert os.waitpid(pid, 0)[1] == 0
    assert lease.is_held
    lease.release()
