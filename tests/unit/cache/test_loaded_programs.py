"""Programs in memory: who is evicted, who never is, and that the counts are exact."""

from __future__ import annotations

import gc
import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.cache.lease import Lease, lease_on
from kernelkeep.cache.loaded_programs import LoadedProgram, LoadedPrograms
from kernelkeep.testing import FakeDevice
from kernelkeep.testing.cache_parts.common import adder


class Program:
    """All that the store knows of a program."""

    def __init__(self, name: str, nbytes: int = 10) -> None:
        self.name = name
        self.nbytes = nbytes
        self.closed: int = 0

    def kernel(self, name: str | None = None) -> str:
        assert not self.closed, f"{self.name} was evicted and is used"
        return f"{self.name}.{name}"

    def close(self) -> None:
        self.closed += 1


class Store(LoadedPrograms):
    """The store, and the lookups as the cache makes them."""

    def load(self, name: str, nbytes: int = 10) -> Program:
        program = Program(name, nbytes)
        self.add(LoadedProgram(self, name, program), name).end()
        return program

    def lease(self, name: str) -> Lease:
        loaded = self.hot.get(name)
        if loaded is None or not loaded.hold():
            loaded = self.hold(name, name)
        assert loaded is not None
        loaded.tick = self.next_tick()
        return lease_on(loaded, "memory")

    def use(self, *names: str) -> None:
        for name in names:
            self.lease(name).release()

    @property
    def names(self) -> set[str]:
        return {loaded.digest for loaded in self}


def test_the_least_recently_used_program_is_evicted_first() -> None:
    store = Store(3, None)
    programs = {name: store.load(name) for name in "abc"}
    store.use("a", "c")
    store.load("d")
    assert store.names == {"a", "c", "d"}
    assert programs["b"].closed == 1
    store.use("a")
    store.load("e")
    assert store.names == {"a", "d", "e"}
    assert store.evictions == 2 and not store.over


def test_a_program_just_added_is_not_the_oldest() -> None:
    store = Store(2, None)
    store.load("a")
    store.use("a", "a")
    store.load("b")
    store.load("c")
    assert store.names == {"b", "c"}, "b was added after the last use of a"


def test_max_bytes_bounds_what_is_loaded() -> None:
    store = Store(100, 100)
    for name in "abcd":
        store.load(name, 25)
    assert store.nbytes == 100 and len(store) == 4
    store.use("a")
    store.load("e", 40)
    assert store.names == {"a", "d", "e"}
    assert store.nbytes == 90 and store.evictions == 2


def test_a_program_larger_than_the_bound_is_served() -> None:
    store = Store(100, 100)
    store.load("small")
    loaded = LoadedProgram(store, "large", Program("large", 1000))
    lease = lease_on(store.add(loaded, "large"), "compiled")
    assert store.names == {"large"} and store.over
    assert lease.kernel("k") == "large.k"
    lease.release()
    assert len(store) == 0 and store.nbytes == 0 and not store.over


def test_a_program_in_use_is_never_evicted() -> None:
    store = Store(2, None)
    programs = {name: store.load(name) for name in "ab"}
    leases = [store.lease("a"), store.lease("b")]
    programs["c"] = store.load("c")
    assert store.over, "whoever adds a program holds it"
    store.shrink()
    assert programs["c"].closed == 1, "nobody holds it, and there is no room"
    leases += [store.lease("a")]
    assert [lease.kernel("k") for lease in leases] == ["a.k", "b.k", "a.k"]
    leases[0].release()
    store.load("d")
    store.shrink()
    assert store.names == {"a", "b"}, "one of two leases on a is still held"
    for lease in leases:
        lease.release()
    store.load("e")
    assert store.names == {"a", "e"}, "a was asked for after b"


def test_grows_past_its_bound_and_shrinks_on_release() -> None:
    store = Store(2, None)
    leases = []
    for name in "abcde":
        loaded = store.add(LoadedProgram(store, name, Program(name)), name)
        leases.append(lease_on(loaded, "compiled"))
    assert len(store) == 5 and store.over and store.evictions == 0
    sizes = []
    for lease in leases:
        lease.release()
        sizes.append((len(store), store.over))
    assert sizes == [(4, True), (3, True), (2, False), (2, False), (2, False)]
    assert store.evictions == 3 and store.nbytes == 20


def test_trim_evicts_down_to_the_target() -> None:
    store = Store(100, None)
    programs = {name: store.load(name) for name in "abcd"}
    held = store.lease("b")
    assert store.trim(30) == 10 and store.names == {"b", "c", "d"}
    assert store.trim(0) == 20 and store.names == {"b"}
    assert not programs["b"].closed and held.kernel() == "b.None"
    assert not store.over, "the bound itself is kept"
    held.release()
    assert store.names == {"b"}, "trimming is done once, the bound stays as it was"
    assert store.trim(0) == 10 and store.trim(0) == 0


def test_update_size_changes_the_bytes_that_count() -> None:
    store = Store(100, None)
    program = store.load("a", 10)
    loaded = store.hold("a", "a")
    assert loaded is not None
    program.nbytes = 70
    store.update_size(loaded)
    assert store.nbytes == 70
    loaded.end()
    store.trim(0)
    assert store.nbytes == 0


def test_a_forgotten_lease_is_released_with_a_warning() -> None:
    store = Store(1, None)
    program = store.load("forgotten")
    lease: Any = store.lease("forgotten")
    store.trim(0)
    assert len(store) == 1
    with pytest.warns(ResourceWarning, match="program forgotten was never released"):
        del lease
    gc.collect()
    store.trim(0)
    assert program.closed == 1


def test_a_forgotten_lease_makes_room_at_the_next_release() -> None:
    """The collector may run inside the store's own lock, so a forgotten lease itself evicts nothing."""
    store = Store(1, None)
    leases: list[Any] = []
    for name in "ab":
        loaded = store.add(LoadedProgram(store, name, Program(name)), name)
        leases.append(lease_on(loaded, "compiled"))
    assert store.over
    with pytest.warns(ResourceWarning, match="program a "):
        del leases[0]
    assert store.names == {"a", "b"} and store.over
    leases[0].release()
    assert store.names == {"b"} and not store.over


def test_releasing_twice_is_fine_and_use_after_release_is_not() -> None:
    store = Store(1, None)
    store.load("a")
    first, second = store.lease("a"), store.lease("a")
    first.release()
    first.release()
    with pytest.raises(kk.DeviceError, match="released"):
        first.kernel()
    with pytest.raises(kk.DeviceError, match="released"):
        first.program  # noqa: B018
    store.trim(0)
    assert second.kernel() == "a.None", "releasing one lease twice does not release the other"
    second.release()
    assert "released" in repr(first)


def test_a_lease_is_a_context_manager() -> None:
    store = Store(1, None)
    program = store.load("a")
    with store.lease("a") as lease:
        store.trim(0)
        assert program.closed == 0
    with pytest.raises(kk.DeviceError):
        lease.kernel()
    store.trim(0)
    assert program.closed == 1


def test_many_names_of_one_program_are_forgotten_with_it() -> None:
    store = Store(1, None)
    store.load("a")
    for number in range(50):
        loaded = store.hold("a", f"alias {number}")
        assert loaded is not None
        loaded.end()
    assert len(store.hot) <= 8, "the table of names is bounded"
    store.trim(0)
    assert not store.hot


def test_clear_closes_everything() -> None:
    store = Store(10, None)
    programs = [store.load(name) for name in "abc"]
    held = store.lease("a")
    store.clear()
    assert [program.closed for program in programs] == [1, 1, 1]
    assert len(store) == 0 and store.nbytes == 0 and not store.hot
    held.release()


def test_hits_are_counted_exactly_under_threads() -> None:
    store = Store(10, None)
    names = "abcdefgh"
    for name in names:
        store.load(name)
    barrier = threading.Barrier(16)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        barrier.wait()
        for _ in range(2000):
            store.use(rng.choice(names))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert store.hits == 16 * 2000
    assert store.hits == 16 * 2000, "looking does not count"


def test_nobody_ever_holds_a_closed_program() -> None:
    """16 threads lease and evict at once; `Program.kernel` fails on one that is closed."""
    store = Store(3, None)
    made: list[Program] = []
    loading = threading.Lock()

    def get(name: str) -> Lease:
        loaded = store.hot.get(name)
        if loaded is None or not loaded.hold():
            with loading:
                loaded = store.hold(name, name)
                if loaded is None:
                    program = Program(name)
                    made.append(program)
                    loaded = store.add(LoadedProgram(store, name, program), name)
        loaded.tick = store.next_tick()
        return lease_on(loaded, "memory")

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(600):
            with get(rng.choice("abcdefgh")) as lease:
                lease.kernel("k")
                if rng.random() < 0.1:
                    store.trim(0)
                lease.kernel("k")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert store.hits == 16 * 600
    assert len(store) <= 3 and not store.over
    assert store.evictions == sum(program.closed for program in made) == len(made) - len(store)
    assert max(program.closed for program in made) == 1
    assert store.nbytes == 10 * len(store)


def test_leases_in_cycles_collected_in_the_middle_of_evictions() -> None:
    """The collector runs at every step, and what it collects are leases of the very programs being evicted."""
    store = Store(2, None)
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for round_number in range(300):
                for name in "abcd":
                    loaded = store.hold(name, name)
                    if loaded is None:
                        loaded = store.add(LoadedProgram(store, name, Program(name)), name)
                    lease = lease_on(loaded, "memory")
                    loaded.tick = store.next_tick()
                    lease.kernel("k")
                    if round_number % 2:
                        cycle: list[Any] = [lease]
                        cycle.append(cycle)
                        del cycle
                    else:
                        lease.release()
                    del lease
            gc.collect()
    finally:
        gc.set_threshold(*before)
    store.shrink()
    assert len(store) <= 2 and not store.over


def test_a_reference_is_not_a_use() -> None:
    """Whatever else refers to a program, a debugger or a thread that is about to forget it, only leases keep it."""
    store = Store(3, None)
    program = store.load("a")
    reference = store.hot["a"]
    store.trim(0)
    assert program.closed == 1 and reference.evicted
    assert not reference.hold(), "whoever found it before its eviction looks it up again"


def test_two_threads_that_release_one_lease_end_one_use() -> None:
    store = Store(1, None)
    program = store.load("a")
    held = store.lease("a")
    barrier = threading.Barrier(8)

    def work(_: int) -> None:
        for lease in leases:
            barrier.wait()
            lease.release()

    leases = [store.lease("a") for _ in range(300)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    store.trim(0)
    assert held.kernel() == "a.None", "a use that ended twice would stand for the one that is still held"
    held.release()
    store.trim(0)
    assert program.closed == 1


def test_a_cache_under_threads_that_get_release_evict_trim_and_count(tmp_path: Path) -> None:
    """16 threads use 8 programs, of which 3 fit. No lease has an evicted program, and every lookup is counted once."""
    with FakeDevice() as device, kk.ProgramCache(device, tmp_path, max_programs=3) as cache:
        sources = [adder(device, number) for number in range(8)]
        lookups = 16 * 400
        seen: list[int] = []

        def work(seed: int) -> None:
            rng = random.Random(seed)
            leases: list[kk.Lease] = []
            for _ in range(400):
                leases.append(cache.get(rng.choice(sources)))
                dice = rng.random()
                if dice < 0.05:
                    cache.trim()
                elif dice < 0.1:
                    seen.append(cache.loaded.hits)
                assert not any(lease.program.closed for lease in leases), "a leased program was closed"
                while len(leases) > rng.randrange(3):
                    leases.pop(rng.randrange(len(leases))).release()
            for lease in leases:
                lease.release()

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(work, range(16)))
        stats = cache.stats()
        assert stats.hits_memory + stats.hits_disk + stats.compiles == lookups
        assert stats.compiles == len(sources) and stats.hits_disk > 0
        assert seen == [] or max(seen) <= stats.hits_memory
        cache.loaded.shrink()
        assert len(cache.loaded) <= 3 and not cache.loaded.over
        cache.trim()
        assert len(cache.loaded) == 0, "every use has ended"
