"""`TierChain`: order, back-fill, rejection, counting, and tiers that fail."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelkeep.cache.chain import TierChain
from kernelkeep.cache.chain_member import TierCounts
from kernelkeep.cache.entry import Entry, encode
from kernelkeep.cache.tiers.disk import DiskTier
from kernelkeep.cache.tiers.tier import NotWritable, Tier
from kernelkeep.errors import BinaryRejected, OutOfMemory
from kernelkeep.testing import FaultyTier
from kernelkeep.testing.entries import sample_entry
from kernelkeep.testing.faulty_tier import DictTier, changed, truncated
from kernelkeep.testing.warned import one_warning

ENTRY, OTHER = sample_entry(1), sample_entry(2)
DIGEST, NAME = ENTRY.facts.key.digest, ENTRY.facts.name


def put(tier: Tier, *entries: Entry) -> None:
    for entry in entries:
        tier.put(entry.facts.key.digest, encode(entry))


def payload(entry: Entry) -> bytes:
    return entry.payload


@pytest.fixture
def near() -> FaultyTier:
    return FaultyTier(DictTier("near"), retry_seconds=(0.05, 0.2))


@pytest.fixture
def far() -> FaultyTier:
    return FaultyTier(DictTier("far"), retry_seconds=(0.05, 0.2))


@pytest.fixture
def chain(near: FaultyTier, far: FaultyTier) -> TierChain:
    return TierChain([near, far])


# --- order, back-fill, counts


def test_the_nearest_tier_is_asked_first_and_alone(chain: TierChain, near: FaultyTier, far: FaultyTier) -> None:
    assert chain.put(ENTRY)
    hit = chain.load(DIGEST, NAME, payload)
    assert hit is not None and (hit.value, hit.facts, hit.origin) == (ENTRY.payload, ENTRY.facts, "remote")
    assert (near.calls["get"], far.calls["get"]) == (1, 0)
    assert chain.counts() == {"near": TierCounts(hits=1, stored=1), "far": TierCounts(stored=1)}
    assert chain.hits("remote") == 1 and chain.hits("disk") == 0


def test_an_entry_from_a_later_tier_fills_the_tiers_before_it(
    chain: TierChain, near: FaultyTier, far: FaultyTier
) -> None:
    put(far.tier, ENTRY)
    hit = chain.load(DIGEST, NAME, payload)
    assert hit is not None and hit.value == ENTRY.payload
    assert near.tier.get(DIGEST) == far.tier.get(DIGEST) == encode(ENTRY), "the same bytes in every tier"
    assert chain.counts() == {"near": TierCounts(misses=1, stored=1, filled=1), "far": TierCounts(hits=1)}
    assert chain.load(DIGEST, NAME, payload) is not None and far.calls["get"] == 1


def test_the_disk_tier_is_filled_from_behind(tmp_path: Path, far: FaultyTier) -> None:
    disk = DiskTier(tmp_path / "cache", "opencl_gpu_0123456789ab", {}, 1 << 30)
    put(far.tier, ENTRY)
    hit = TierChain([disk, far]).load(DIGEST, NAME, payload)
    assert hit is not None and hit.origin == "remote"
    assert disk.count()[0] == 1 and disk.find_name(NAME) == [DIGEST]
    hit = TierChain([disk, far]).load(DIGEST, NAME, payload)
    assert hit is not None and hit.origin == "disk" and far.calls["get"] == 1


def test_nothing_is_found_in_empty_tiers(chain: TierChain) -> None:
    assert chain.find(DIGEST, NAME) is None and chain.load(DIGEST, NAME, payload) is None
    assert chain.counts() == {"near": TierCounts(misses=2), "far": TierCounts(misses=2)}


def test_a_chain_without_tiers_finds_and_keeps_nothing() -> None:
    chain = TierChain([])
    assert not chain.put(ENTRY) and chain.load(DIGEST, NAME, payload) is None
    with chain.alone(DIGEST, 1) as locked:
        assert not locked


def test_finding_without_loading_counts_no_hit_and_fills_nothing(
    chain: TierChain, near: FaultyTier, far: FaultyTier
) -> None:
    put(far.tier, ENTRY)
    assert chain.find(DIGEST, NAME) == (ENTRY, "remote")
    assert list(near.tier.scan()) == [] and chain.hits("remote") == 0


# --- lies


@pytest.mark.parametrize("lie", [truncated, changed, lambda data: b"", lambda data: b"x" * 100_000], ids=str)
def test_a_lying_tier_is_rejected_and_counted(
    chain: TierChain, near: FaultyTier, far: FaultyTier, lie: Callable[[bytes], bytes]
) -> None:
    chain.put(ENTRY)
    near.lie = lie
    hit = chain.load(DIGEST, NAME, payload)
    assert hit is not None and hit.value == ENTRY.payload, "the next tier has it"
    assert chain.rejected == 1 and near.calls["reject"] == 1
    assert (chain.counts()["near"].filled, chain.counts()["far"].hits) == (1, 1)
    near.lie = None
    assert chain.load(DIGEST, NAME, payload) is not None and chain.counts()["near"].hits == 1, "and was mended"


def test_a_tier_that_answers_for_another_key_is_rejected(chain: TierChain, near: FaultyTier) -> None:
    chain.put(ENTRY)
    chain.put(OTHER)
    near.answer_for = OTHER.facts.key.digest
    hit = chain.load(DIGEST, NAME, payload)
    assert hit is not None and hit.value == ENTRY.payload
    assert chain.rejected == 1 and near.tier.get(OTHER.facts.key.digest) is not None, "the other entry is untouched"


def test_all_tiers_lying_is_a_miss(chain: TierChain, near: FaultyTier, far: FaultyTier) -> None:
    chain.put(ENTRY)
    near.lie = far.lie = changed
    assert chain.load(DIGEST, NAME, payload) is None and chain.rejected == 2
    assert list(near.tier.scan()) == list(far.tier.scan()) == []


def test_what_the_driver_refuses_is_rejected_and_the_next_tier_is_asked(
    chain: TierChain, near: FaultyTier, far: FaultyTier
) -> None:
    put(near.tier, sample_entry(1, size=10))
    put(far.tier, ENTRY)

    def load(entry: Entry) -> bytes:
        if len(entry.payload) == 10:
            raise BinaryRejected("of another driver")
        return entry.payload

    hit = chain.load(DIGEST, NAME, load)
    assert hit is not None and hit.value == ENTRY.payload
    assert chain.counts()["near"] == TierCounts(rejected=1, stored=1, filled=1)
    assert near.tier.get(DIGEST) == encode(ENTRY)


def test_other_errors_of_the_caller_reach_the_caller(chain: TierChain, near: FaultyTier) -> None:
    chain.put(ENTRY)

    def load(entry: Entry) -> bytes:
        raise OutOfMemory("no room")

    with pytest.raises(OutOfMemory):
        chain.load(DIGEST, NAME, load)
    assert near.tier.get(DIGEST) is not None and chain.counts()["near"] == TierCounts(stored=1)


def test_rejecting_later_takes_it_out_of_every_tier(chain: TierChain, near: FaultyTier, far: FaultyTier) -> None:
    chain.put(ENTRY)
    chain.put(OTHER)
    near.tier.delete(DIGEST)
    chain.reject(DIGEST, NAME, "the driver refused it at its first launch")
    assert list(near.tier.scan()) == list(far.tier.scan()) == [OTHER.facts.key.digest]
    assert chain.rejected == 1, "counted where it was"


# --- tiers that fail


def test_a_tier_that_is_down_is_skipped_and_tried_again_later(
    chain: TierChain, near: FaultyTier, far: FaultyTier
) -> None:
    chain.put(ENTRY)
    near.failing = {"open", "get", "put"}
    with one_warning("near tier in the dict of near fails (the tier is down)"):
        for _ in range(5):
            hit = chain.load(DIGEST, NAME, payload)
            assert hit is not None and hit.value == ENTRY.payload
    assert near.calls["get"] == 1, "it was left alone after the first failure"
    counts = chain.counts()["near"]
    assert (counts.failed, counts.hits) == (1, 0) and counts.skipped >= 4
    time.sleep(0.06)
    chain.load(DIGEST, NAME, payload)  # it is tried again, and is still down
    assert (near.calls["get"], near.calls["open"]) == (1, 2) and chain.counts()["near"].failed == 2
    near.failing = set()
    time.sleep(0.06)
    assert chain.load(DIGEST, NAME, payload) is not None and chain.counts()["near"].hits == 0, "the pause has doubled"
    time.sleep(0.06)
    assert chain.load(DIGEST, NAME, payload) is not None and chain.counts()["near"].hits == 1


def test_a_tier_that_is_down_at_the_start_comes_back(near: FaultyTier, far: FaultyTier) -> None:
    put(near.tier, ENTRY)
    near.failing = {"open"}
    with one_warning("the tier is down"):
        chain = TierChain([near, far])
    assert chain.find(DIGEST, NAME) is None and near.calls["get"] == 0
    near.failing = set()
    time.sleep(0.06)
    assert chain.find(DIGEST, NAME) == (ENTRY, "remote")


def test_a_tier_that_cannot_be_written_to_is_still_read(near: FaultyTier, far: FaultyTier) -> None:
    put(near.tier, ENTRY)
    near.failing, near.error = {"open"}, NotWritable("read-only")
    with one_warning("read-only"):
        chain = TierChain([near, far])
        assert chain.find(DIGEST, NAME) == (ENTRY, "remote")
        assert chain.put(OTHER), "the other tier takes it"
    assert near.calls["put"] == 0 and near.tier.get(OTHER.facts.key.digest) is None


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left"), ValueError("odd"), RuntimeError(), MemoryError()], ids=repr
)
def test_a_failing_put_never_breaks_the_caller(
    chain: TierChain, near: FaultyTier, far: FaultyTier, error: Exception
) -> None:
    near.failing, near.error = {"put"}, error
    with one_warning("near tier"):
        assert chain.put(ENTRY) and chain.put(OTHER), "the other tier has it"
        far.failing = {"put"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert not chain.put(sample_entry(3))
    assert near.calls["put"] == 1
    near.failing = set()
    hit = chain.load(DIGEST, NAME, payload)
    assert hit is not None and chain.counts()["near"].filled == 0, "not filled while its pause lasts"
    time.sleep(0.06)
    assert chain.load(DIGEST, NAME, payload) is not None and chain.counts()["near"].filled == 1


def test_a_failing_reject_never_breaks_the_caller(chain: TierChain, near: FaultyTier) -> None:
    chain.put(ENTRY)
    near.lie, near.failing = changed, {"reject", "delete"}
    for _ in range(2):
        hit = chain.load(DIGEST, NAME, payload)
        assert hit is not None and hit.value == ENTRY.payload
    assert (chain.rejected, chain.counts()["near"].failed) == (2, 2)


def test_a_full_tier_is_no_failure(chain: TierChain, near: FaultyTier) -> None:
    near.full = True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chain.put(ENTRY) and chain.put(OTHER)
    assert near.calls["put"] == 2 and chain.counts()["near"] == TierCounts()


def test_a_forgetful_tier_costs_a_lookup_and_nothing_else(chain: TierChain, near: FaultyTier) -> None:
    near.forgetful = True
    chain.put(ENTRY)
    for _ in range(2):
        hit = chain.load(DIGEST, NAME, payload)
        assert hit is not None and hit.value == ENTRY.payload
    assert chain.counts()["near"].misses == 2


def test_a_slow_tier_is_waited_for(chain: TierChain, near: FaultyTier) -> None:
    chain.put(ENTRY)
    near.delay_seconds = 0.02
    assert chain.load(DIGEST, NAME, payload) is not None and chain.counts()["near"].hits == 1


def test_a_warning_that_is_an_error_breaks_nothing(chain: TierChain, near: FaultyTier) -> None:
    near.failing = {"get"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chain.find(DIGEST, NAME) is None


def test_a_name_that_cannot_be_encoded_is_not_kept(chain: TierChain) -> None:
    assert not chain.put(sample_entry(1, name="bad\udc80name")) and chain.is_writable


def test_a_failing_lock_never_breaks_the_caller(tmp_path: Path, near: FaultyTier) -> None:
    disk = DiskTier(tmp_path / "cache", "opencl_gpu_0123456789ab", {}, 1 << 30)
    chain = TierChain([near, disk])
    near.failing = {"lock"}
    with one_warning("the tier is down"), chain.alone(DIGEST, 1) as locked:
        assert locked, "the disk's lock is held"
        with TierChain([disk]).alone(DIGEST, 0) as again:
            assert not again
