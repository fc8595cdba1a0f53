"""One machine compiles for all that share a store, and none waits in vain. A machine here is a chain with a folder."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from kernelkeep.cache.chain import TierChain
from kernelkeep.cache.chain_member import LookupTime
from kernelkeep.cache.tiers.disk import DiskTier
from kernelkeep.cache.tiers.remote import RemoteTier
from kernelkeep.cache.tiers.remote_lock import RemoteLock
from kernelkeep.remote.address import Remote, open_store
from kernelkeep.remote.signing import keys_for
from kernelkeep.testing.entries import sample_entry
from kernelkeep.testing.servers import RedisServer

ENTRY = sample_entry(1)
DIGEST = ENTRY.facts.key.digest
PATIENCE = 60.0


class Machine:
    """A chain of a disk and a remote tier, and a compiler that is told what to do."""

    def __init__(self, folder: Path, remote: Remote) -> None:
        self.disk = DiskTier(folder, "gpu", {}, 1 << 30)
        self.remote = RemoteTier(remote, keys_for(remote), "f" * 64)
        self.chain = TierChain([self.disk, self.remote], lookup_seconds=30)
        self.compiles = 0
        self.locks: list[RemoteLock] = []
        lock = self.remote.lock

        def recorded(digest: str) -> RemoteLock | None:
            made = lock(digest)
            self.locks += [] if made is None else [made]
            return made

        self.remote.lock = recorded  # type: ignore[method-assign]

    @property
    def waits(self) -> bool:
        """Whether another machine had the lease when this one asked for it."""
        return any(lock.waited for lock in self.locks)

    def get(self, compile_entry: Callable[[], None] = lambda: None, timeout_seconds: float = PATIENCE) -> str:
        """What `ProgramCache` does on a miss: the origin of the entry."""
        within = LookupTime(30)
        origin = self._look(None, within)
        looked: list[str] = []

        def found(tiers: int) -> bool:
            looked.extend(filter(None, [self._look(tiers, within)]))
            return bool(looked)

        if origin:
            return origin
        with self.chain.alone(DIGEST, timeout_seconds, "program", found=found, within=within):
            if not looked:
                self.compiles += 1
                compile_entry()
                self.chain.put(ENTRY)
                return "compiled"
        return looked[0]

    def _look(self, tiers: int | None, within: LookupTime) -> str:
        hit = self.chain.load(DIGEST, "program", lambda entry: entry, within=within, tiers=tiers)
        return hit.origin if hit is not None else ""


@pytest.fixture
def remote(redis_server: RedisServer, namespace: str) -> Remote:
    return Remote(redis_server.url, namespace=namespace, signing_key=b"a shared secret", timeout_seconds=30)


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


def leases(remote: Remote) -> list[str]:
    return list(open_store(remote).list("leases/"))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def start(pool: ThreadPoolExecutor, machine: Machine, compiling: Callable[[], None] = lambda: None) -> Future[str]:
    return pool.submit(machine.get, compiling)


def test_one_machine_compiles_and_the_others_load_its_bytes(
    tmp_path: Path, remote: Remote, pool: ThreadPoolExecutor
) -> None:
    machines = [Machine(tmp_path / str(number), remote) for number in range(4)]
    go_on = threading.Event()
    compiling = [start(pool, machine, lambda: assert_(go_on.wait(PATIENCE))) for machine in machines]
    until(lambda: sum(machine.compiles for machine in machines) == 1)
    until(lambda: sum(machine.waits for machine in machines) == 3)
    go_on.set()
    assert sorted(future.result() for future in compiling) == ["compiled", "remote", "remote", "remote"]
    assert sum(machine.compiles for machine in machines) == 1
    assert all(machine.disk.get(DIGEST) for machine in machines)
    until(lambda: not leases(remote))


def assert_(value: bool) -> None:
    assert value


def test_the_lease_is_held_until_the_bytes_are_in_the_store(tmp_path: Path, remote: Remote) -> None:
    machine = Machine(tmp_path / "a", remote)
    writing, go_on = threading.Event(), threading.Event()
    put = machine.remote.put

    def put_slowly(digest: str, data: bytes) -> None:
        writing.set()
        assert go_on.wait(PATIENCE)
        put(digest, data)

    machine.remote.put = put_slowly  # type: ignore[method-assign]
    assert machine.get() == "compiled"
    assert writing.wait(PATIENCE)
    assert leases(remote)
    go_on.set()
    until(lambda: not leases(remote))
    assert Machine(tmp_path / "b", remote).get() == "remote"


def test_a_hit_touches_no_lease(tmp_path: Path, remote: Remote) -> None:
    first = Machine(tmp_path / "a", remote)
    assert first.get() == "compiled"
    assert first.chain.flush(PATIENCE)
    until(lambda: not leases(remote))
    second = Machine(tmp_path / "b", remote)

    def no_lock(digest: str) -> None:
        raise AssertionError("a hit asks for no lock")

    second.remote.lock = no_lock  # type: ignore[method-assign]
    assert [second.get(), second.get()] == ["remote", "disk"]


def test_a_failed_compile_lets_those_who_wait_compile_at_once(
    tmp_path: Path, remote: Remote, pool: ThreadPoolExecutor
) -> None:
    first, *others = (Machine(tmp_path / str(number), remote) for number in range(4))
    go_on, all_here = threading.Event(), threading.Barrier(3)

    def fail() -> None:
        assert go_on.wait(PATIENCE)
        raise ValueError("it does not compile")

    def compile_together() -> None:
        all_here.wait(PATIENCE)  # passes only if none of them waits for another

    failing = start(pool, first, fail)
    until(lambda: first.compiles == 1)
    waiting = [start(pool, machine, compile_together) for machine in others]
    until(lambda: all(machine.waits for machine in others))
    go_on.set()
    with pytest.raises(ValueError, match="does not compile"):
        failing.result()
    assert [future.result() for future in waiting] == ["compiled"] * 3


def test_what_was_not_stored_is_not_waited_for(tmp_path: Path, remote: Remote, pool: ThreadPoolExecutor) -> None:
    first, second = Machine(tmp_path / "a", remote), Machine(tmp_path / "b", remote)
    go_on = threading.Event()

    def become_a_reader() -> None:
        assert go_on.wait(PATIENCE)
        first.remote.read_only = True

    compiling = start(pool, first, become_a_reader)
    until(lambda: first.compiles == 1)
    waiting = start(pool, second)
    until(lambda: second.waits)
    go_on.set()
    assert (compiling.result(), waiting.result()) == ("compiled", "compiled")


def test_an_interrupted_compile_hands_the_lease_on(tmp_path: Path, remote: Remote, pool: ThreadPoolExecutor) -> None:
    first, second, third = (Machine(tmp_path / str(number), remote) for number in range(3))
    go_on, finish = threading.Event(), threading.Event()

    def interrupted() -> None:
        assert go_on.wait(PATIENCE)
        raise KeyboardInterrupt

    compiling = start(pool, first, interrupted)
    until(lambda: first.compiles == 1)
    waiting = [start(pool, machine, lambda: assert_(finish.wait(PATIENCE))) for machine in (second, third)]
    until(lambda: second.waits and third.waits)
    go_on.set()
    assert isinstance(compiling.exception(), KeyboardInterrupt)
    until(lambda: second.compiles + third.compiles == 1)
    time.sleep(0.3)
    assert second.compiles + third.compiles == 1
    finish.set()
    assert sorted(future.result() for future in waiting) == ["compiled", "remote"]


def test_a_reader_takes_no_lease(tmp_path: Path, remote: Remote) -> None:
    reader = Remote(remote.url, namespace=remote.namespace, signing_key=remote.signing_key, read_only=True)
    machine = Machine(tmp_path / "a", reader)
    assert machine.get(lambda: assert_(not leases(remote))) == "compiled"


def test_a_store_that_goes_away_meanwhile_is_not_waited_for(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with RedisServer() as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        remote = Remote(server.url, signing_key=b"a shared secret", timeout_seconds=30)
        first, second = Machine(tmp_path / "a", remote), Machine(tmp_path / "b", remote)
        go_on = threading.Event()
        compiling = start(pool, first, lambda: assert_(go_on.wait(PATIENCE)))
        until(lambda: first.compiles == 1)
        waiting = start(pool, second)
        until(lambda: second.waits)
        server.kill()
        assert waiting.result(PATIENCE) == "compiled"
        go_on.set()
        assert compiling.result(PATIENCE) == "compiled"
        for machine in (first, second):
            machine.chain.close(0)


@pytest.mark.filterwarnings("ignore::kernelkeep.errors.CacheWarning")
def test_closing_does_not_wait_for_each_lease_of_a_store_that_hangs(tmp_path: Path) -> None:
    with RedisServer() as server:
        machine = Machine(tmp_path, Remote(server.url, signing_key=b"a shared secret", timeout_seconds=30))
        with contextlib.ExitStack() as compiles:
            for number in range(40):
                compiles.enter_context(machine.chain.alone(f"{number:064}", PATIENCE))
            server.pause()
        begun = time.monotonic()
        machine.chain.close()
        assert time.monotonic() - begun < 20, "a second for each of them is 40"


def test_a_store_is_not_asked_and_not_blamed_with_hardly_any_time_left(tmp_path: Path, remote: Remote) -> None:
    machine, within = Machine(tmp_path, remote), LookupTime(30)
    within.seconds_left = 1e-9
    assert machine.chain.load(DIGEST, "program", lambda entry: entry, within=within) is None
    with machine.chain.alone(DIGEST, PATIENCE, within=within):
        assert not leases(remote)
    counts = machine.chain.counts()["remote"]
    assert (counts.skipped, counts.failed) == (1, 0)


def test_a_process_that_waited_for_its_neighbour_asks_no_other_machine(
    tmp_path: Path, remote: Remote, pool: ThreadPoolExecutor
) -> None:
    """Two processes of one machine: the second finds the entry on disk, although the first still writes it to the store."""
    first, second = Machine(tmp_path / "a", remote), Machine(tmp_path / "a", remote)
    go_on = threading.Event()
    first.remote.put = lambda digest, data: assert_(go_on.wait(PATIENCE))  # type: ignore[method-assign]
    begin = threading.Event()
    compiling = start(pool, first, lambda: assert_(begin.wait(PATIENCE)))
    until(lambda: first.compiles == 1)
    waiting = start(pool, second)
    time.sleep(0.1)
    begin.set()
    assert compiling.result() == "compiled"
    assert waiting.result(PATIENCE) == "disk"
    go_on.set()


def test_leases_of_a_server_that_hangs_are_left_to_run_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with RedisServer() as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        machine = Machine(tmp_path / "a", Remote(server.url, signing_key=b"a shared secret", timeout_seconds=2))

        def hang() -> None:
            for name in ("release", "abandon", "drop"):  # of this lock: those of other tests may still be released
                monkeypatch.setattr(machine.locks[0], name, partial(told.append, name))
            server.pause()
            machine.chain.locate("0" * 64, "another program")  # the tier is known to fail from here on

        assert machine.get(hang) == "compiled"
        machine.chain.close()
        assert len(machine.locks) == 1
        assert told == ["drop"], "closing must not wait for an answer"


def test_waiting_ends_in_time(tmp_path: Path, remote: Remote, pool: ThreadPoolExecutor) -> None:
    first, second = Machine(tmp_path / "a", remote), Machine(tmp_path / "b", remote)
    go_on = threading.Event()
    compiling = start(pool, first, lambda: assert_(go_on.wait(PATIENCE)))
    until(lambda: first.compiles == 1)
    assert second.get(timeout_seconds=0.1) == "compiled"
    go_on.set()
    assert compiling.result() == "compiled"


@pytest.mark.filterwarnings("ignore::kernelkeep.errors.CacheWarning")
def test_bytes_that_are_refused_are_not_what_is_waited_for(
    tmp_path: Path, remote: Remote, pool: ThreadPoolExecutor
) -> None:
    open_store(remote).put(f"programs/{'f' * 64}/{DIGEST}", b"nobody signed this")
    first, second = Machine(tmp_path / "a", remote), Machine(tmp_path / "b", remote)
    go_on = threading.Event()
    compiling = start(pool, first, lambda: assert_(go_on.wait(PATIENCE)))
    until(lambda: first.compiles == 1)
    waiting = start(pool, second)
    until(lambda: second.waits)
    time.sleep(0.2)  # it looks for the bytes a few times, and those that it refused are there
    assert second.compiles == 0
    go_on.set()
    assert (compiling.result(), waiting.result()) == ("compiled", "remote")
    assert first.chain.counts()["remote"].refused == second.chain.counts()["remote"].refused == 1
