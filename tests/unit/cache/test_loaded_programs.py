"""Programs in memory: who is evicted, who never is, and that the counts are exact."""

from __future__ import annotations

import gc
import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import kernelkeep as kk
from kernelkeep.cache.lease import Lease
from kernelkeep.cache.loaded_programs import LoadedProgram, LoadedPrograms


class Program:
    """All that the tier knows of a program."""

    def __init__(self, name: str, nbytes: int = 10) -> None:
        self.name = name
        self.nbytes = nbytes
        self.closed: int = 0

    def kernel(self, name: str | None = None) -> str:
        assert not self.closed, f"{self.name} was evicted and is used"
        return f"{self.name}.{name}"

    def close(self) -> None:
        self.closed += 1


class Tier(LoadedPrograms):
    """The tier, and the lookups as the cache makes them."""

    def load(self, name: str, nbytes: int = 10) -> Program:
        program = Program(name, nbytes)
        self.add(LoadedProgram(self, name, program), name)
        return program

    def lease(self, name: str) -> Lease:
        slot = self.hot.get(name) or self.find(name, name)
        assert slot is not None
        slot.tick = self.next_tick()
        return Lease(slot, "memory")

    def use(self, *names: str) -> None:
        for name in names:
            self.lease(name).release()

    @property
    def names(self) -> set[str]:
        return {slot.digest for slot in self}


def test_the_least_recently_used_goes_first() -> None:
    tier = Tier(3, None)
    programs = {name: tier.load(name) for name in "abc"}
    tier.use("a", "c")
    tier.load("d")
    assert tier.names == {"a", "c", "d"}
    assert programs["b"].closed == 1
    tier.use("a")
    tier.load("e")
    assert tier.names == {"a", "d", "e"}
    assert tier.evictions == 2 and not tier.over


def test_a_program_just_added_is_not_the_oldest() -> None:
    tier = Tier(2, None)
    tier.load("a")
    tier.use("a", "a")
    tier.load("b")
    tier.load("c")
    assert tier.names == {"b", "c"}, "b was added after the last use of a"


def test_bounded_by_bytes() -> None:
    tier = Tier(100, 100)
    for name in "abcd":
        tier.load(name, 25)
    assert tier.nbytes == 100 and len(tier) == 4
    tier.use("a")
    tier.load("e", 40)
    assert tier.names == {"a", "d", "e"}
    assert tier.nbytes == 90 and tier.evictions == 2


def test_a_program_larger_than_the_bound_is_served() -> None:
    tier = Tier(100, 100)
    tier.load("small")
    slot = LoadedProgram(tier, "large", Program("large", 1000))
    tier.add(slot, "large")
    lease = Lease(slot, "compiled")
    del slot
    assert tier.names == {"large"} and tier.over
    assert lease.kernel("k") == "large.k"
    lease.release()
    assert len(tier) == 0 and tier.nbytes == 0 and not tier.over


def test_a_program_in_use_is_never_evicted() -> None:
    tier = Tier(2, None)
    programs = {name: tier.load(name) for name in "ab"}
    leases = [tier.lease("a"), tier.lease("b")]
    programs["c"] = tier.load("c")
    assert tier.over, "whoever adds a program holds it"
    tier.shrink()
    assert programs["c"].closed == 1, "nobody holds it, and there is no room"
    leases += [tier.lease("a")]
    assert [lease.kernel("k") for lease in leases] == ["a.k", "b.k", "a.k"]
    leases[0].release()
    tier.load("d")
    tier.shrink()
    assert tier.names == {"a", "b"}, "one of two leases on a is still held"
    for lease in leases:
        lease.release()
    tier.load("e")
    assert tier.names == {"a", "e"}, "a was asked for after b"


def test_grows_past_its_bound_and_shrinks_on_release() -> None:
    tier = Tier(2, None)
    leases = []
    for name in "abcde":
        slot = LoadedProgram(tier, name, Program(name))
        tier.add(slot, name)
        leases.append(Lease(slot, "compiled"))
        del slot
    assert len(tier) == 5 and tier.over and tier.evictions == 0
    sizes = []
    for lease in leases:
        lease.release()
        sizes.append((len(tier), tier.over))
    assert sizes == [(4, True), (3, True), (2, False), (2, False), (2, False)]
    assert tier.evictions == 3 and tier.nbytes == 20


def test_trim() -> None:
    tier = Tier(100, None)
    programs = {name: tier.load(name) for name in "abcd"}
    held = tier.lease("b")
    assert tier.trim(30) == 10 and tier.names == {"b", "c", "d"}
    assert tier.trim(0) == 20 and tier.names == {"b"}
    assert not programs["b"].closed and held.kernel() == "b.None"
    assert not tier.over, "the bound itself is kept"
    held.release()
    assert tier.names == {"b"}, "trimming is done once, the bound stays as it was"
    assert tier.trim(0) == 10 and tier.trim(0) == 0


def test_a_program_that_grew() -> None:
    tier = Tier(100, None)
    program = tier.load("a", 10)
    slot = tier.find("a", "a")
    assert slot is not None
    program.nbytes = 70
    tier.update_size(slot)
    assert tier.nbytes == 70
    del slot
    tier.trim(0)
    assert tier.nbytes == 0


def test_a_forgotten_lease_is_released_with_a_warning() -> None:
    tier = Tier(1, None)
    program = tier.load("forgotten")
    lease: Any = tier.lease("forgotten")
    tier.trim(0)
    assert len(tier) == 1
    with pytest.warns(ResourceWarning, match="program forgotten was never released"):
        del lease
    gc.collect()
    tier.trim(0)
    assert program.closed == 1


def test_a_forgotten_lease_makes_room_at_the_next_release() -> None:
    """The collector may run inside the tier's own lock, so a forgotten lease itself evicts nothing."""
    tier = Tier(1, None)
    leases: list[Any] = []
    for name in "ab":
        slot = LoadedProgram(tier, name, Program(name))
        tier.add(slot, name)
        leases.append(Lease(slot, "compiled"))
        del slot
    assert tier.over
    with pytest.warns(ResourceWarning, match="program a "):
        del leases[0]
    assert tier.names == {"a", "b"} and tier.over
    leases[0].release()
    assert tier.names == {"b"} and not tier.over


def test_releasing_twice_is_fine_and_use_after_release_is_not() -> None:
    tier = Tier(1, None)
    tier.load("a")
    first, second = tier.lease("a"), tier.lease("a")
    first.release()
    first.release()
    with pytest.raises(kk.DeviceError, match="released"):
        first.kernel()
    with pytest.raises(kk.DeviceError, match="released"):
        first.program  # noqa: B018
    tier.trim(0)
    assert second.kernel() == "a.None", "releasing one lease twice does not release the other"
    second.release()
    assert "released" in repr(first)


def test_a_lease_is_a_context_manager() -> None:
    tier = Tier(1, None)
    program = tier.load("a")
    with tier.lease("a") as lease:
        tier.trim(0)
        assert program.closed == 0
    with pytest.raises(kk.DeviceError):
        lease.kernel()
    tier.trim(0)
    assert program.closed == 1


def test_many_names_of_one_program_are_forgotten_with_it() -> None:
    tier = Tier(1, None)
    tier.load("a")
    for number in range(50):
        assert tier.find("a", f"alias {number}") is not None
    assert len(tier.hot) <= 8, "the table of names is bounded"
    tier.trim(0)
    assert not tier.hot


def test_clear_closes_everything() -> None:
    tier = Tier(10, None)
    programs = [tier.load(name) for name in "abc"]
    held = tier.lease("a")
    tier.clear()
    assert [program.closed for program in programs] == [1, 1, 1]
    assert len(tier) == 0 and tier.nbytes == 0 and not tier.hot
    held.release()


def test_hits_are_counted_exactly_under_threads() -> None:
    tier = Tier(10, None)
    names = "abcdefgh"
    for name in names:
        tier.load(name)
    barrier = threading.Barrier(16)

    def work(seed: int) -> None:
        rng = random.Random(seed)
        barrier.wait()
        for _ in range(2000):
            tier.use(rng.choice(names))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert tier.hits == 16 * 2000
    assert tier.hits == 16 * 2000, "looking does not count"


def test_nobody_ever_holds_a_closed_program() -> None:
    """16 threads lease and evict at once; `Program.kernel` fails on one that is closed."""
    tier = Tier(3, None)
    made: list[Program] = []
    loading = threading.Lock()

    def get(name: str) -> Lease:
        slot = tier.hot.get(name)
        if slot is None:
            with loading:
                slot = tier.find(name, name)
                if slot is None:
                    program = Program(name)
                    made.append(program)
                    slot = LoadedProgram(tier, name, program)
                    tier.add(slot, name)
        slot.tick = tier.next_tick()
        return Lease(slot, "memory")

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(600):
            with get(rng.choice("abcdefgh")) as lease:
                lease.kernel("k")
                if rng.random() < 0.1:
                    tier.trim(0)
                lease.kernel("k")

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert tier.hits == 16 * 600
    assert len(tier) <= 3 and not tier.over
    assert tier.evictions == sum(program.closed for program in made) == len(made) - len(tier)
    assert max(program.closed for program in made) == 1
    assert tier.nbytes == 10 * len(tier)


def test_leases_in_cycles_collected_in_the_middle_of_evictions() -> None:
    """The collector runs at every step, and what it collects are leases of the very programs being evicted."""
    tier = Tier(2, None)
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for round_number in range(300):
                for name in "abcd":
                    slot = tier.find(name, name)
                    if slot is None:
                        slot = tier.add(LoadedProgram(tier, name, Program(name)), name)
                    lease = Lease(slot, "memory")
                    slot.tick = tier.next_tick()
                    del slot
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
    tier.shrink()
    assert len(tier) <= 2 and not tier.over
