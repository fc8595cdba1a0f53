"""`TierTests`: what every tier does, ours or yours.

    class TestMine(TierTests):
        def make_tier(self, folder):
            return MyTier(...)

`make_tier` opens a tier on the same place each time it is called in a test, and on an empty one in each test.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..cache.chain import TierChain
from ..cache.entry import Entry, encode
from ..cache.tiers.tier import NotStored, Place, Tier
from ..devices.ahead import architecture_fingerprint
from ..storage.locks import LockUnavailable
from .entries import sample_entry

__all__ = ["TierTests"]

MakeTier = Callable[[], Tier]


def _digest(entry: Entry) -> str:
    return entry.facts.key.digest


def _put(tier: Tier, *entries: Entry) -> None:
    for entry in entries:
        tier.put(_digest(entry), encode(entry))


class TierTests:
    """The conformance suite of tiers. Subclass it and say how to make one."""

    @abstractmethod
    def make_tier(self, folder: Path) -> Tier:
        """A tier on the place that belongs to `folder`, an empty folder of the test. It need not use the folder."""

    @pytest.fixture
    def open_tier(self, tmp_path: Path) -> MakeTier:
        """Makes and opens a tier."""

        def open_one() -> Tier:
            tier = self.make_tier(tmp_path)
            tier.open()
            return tier

        return open_one

    @pytest.fixture
    def tier(self, open_tier: MakeTier) -> Tier:
        """One tier, at first empty."""
        return open_tier()

    def test_it_says_what_and_where_it_is(self, tier: Tier) -> None:
        assert tier.name and tier.location
        assert tier.origin in ("disk", "remote")
        first, longest = tier.retry_seconds
        assert 0 < first <= longest

    def test_an_empty_tier_has_nothing(self, tier: Tier) -> None:
        digest = _digest(sample_entry(1))
        assert tier.get(digest) is None and tier.get_named(digest, "program1") is None
        assert list(tier.scan()) == []
        tier.delete(digest)
        tier.reject(digest)

    @pytest.mark.parametrize("size", [0, 1, 1000, 1 << 20], ids=str)
    def test_get_returns_the_bytes_that_were_put(self, tier: Tier, size: int) -> None:
        entry = sample_entry(1, size=size)
        data = encode(entry)
        tier.put(_digest(entry), data)
        found = tier.get(_digest(entry))
        assert found == data and isinstance(found, bytes)

    def test_entries_are_kept_apart(self, tier: Tier) -> None:
        entries = [sample_entry(number) for number in range(20)]
        _put(tier, *entries)
        for entry in entries:
            assert tier.get(_digest(entry)) == encode(entry)
        assert sorted(tier.scan()) == sorted(map(_digest, entries))

    @pytest.mark.parametrize("name", ["program1", "another", "", "a/b", "🚀"])
    def test_the_name_is_only_a_hint(self, tier: Tier, name: str) -> None:
        entry = sample_entry(1)
        _put(tier, entry)
        assert tier.get_named(_digest(entry), name) == encode(entry)

    @pytest.mark.parametrize("name", ["../../up", "x" * 300, "🚀", "a\nb"])
    def test_programs_may_have_any_name(self, tier: Tier, name: str) -> None:
        entry = sample_entry(1, name=name)
        _put(tier, entry)
        assert tier.get(_digest(entry)) == encode(entry)

    def test_put_replaces_what_was_there(self, tier: Tier) -> None:
        old, new = sample_entry(1, size=5000), sample_entry(1, name="renamed", size=100)
        _put(tier, old, new)
        assert tier.get(_digest(new)) == encode(new)
        assert list(tier.scan()) == [_digest(new)]

    def test_delete_and_reject_remove_one_entry(self, tier: Tier) -> None:
        entries = [sample_entry(number) for number in range(3)]
        _put(tier, *entries)
        tier.delete(_digest(entries[0]))
        tier.reject(_digest(entries[1]))
        assert [tier.get(_digest(entry)) is None for entry in entries] == [True, True, False]
        assert list(tier.scan()) == [_digest(entries[2])]
        _put(tier, *entries)
        assert all(tier.get(_digest(entry)) == encode(entry) for entry in entries), "it may be put again"

    def test_another_tier_on_the_same_place_finds_them(self, tier: Tier, open_tier: MakeTier) -> None:
        _put(tier, sample_entry(1), sample_entry(2))
        tier.delete(_digest(sample_entry(2)))
        again = open_tier()
        assert again.get(_digest(sample_entry(1))) == encode(sample_entry(1))
        assert list(again.scan()) == [_digest(sample_entry(1))]
        again.open()
        assert again.get(_digest(sample_entry(1))) is not None, "opening it once more changes nothing"

    def test_readers_see_a_whole_entry_or_none(self, tier: Tier) -> None:
        """Threads replace, delete and read the same entry."""
        versions = [encode(sample_entry(1, size=size)) for size in (10, 30_000, 200_000)]
        digest = _digest(sample_entry(1))
        start = threading.Barrier(6)

        def write(number: int) -> None:
            start.wait()
            for step in range(15):
                if number == 0 and step % 5 == 4:
                    tier.delete(digest)
                else:
                    tier.put(digest, versions[(number + step) % 3])

        def read(number: int) -> None:
            start.wait()
            for _ in range(40):
                assert tier.get(digest) in (None, *versions)

        with ThreadPoolExecutor(6) as pool:
            done = [pool.submit(work, number) for number in range(3) for work in (write, read)]
            for one in done:
                one.result()

    def test_programs_compiled_ahead_are_kept_apart(self, tier: Tier, open_tier: MakeTier) -> None:
        entry = sample_entry(1)
        architecture = architecture_fingerprint("sample", "kernelkeep", "one")
        other = architecture_fingerprint("sample", "kernelkeep", "two")
        place = Place(_digest(entry), architecture.digest, architecture.folder, architecture.facts)
        elsewhere = Place(_digest(entry), other.digest, other.folder, other.facts)
        name = entry.facts.name
        assert tier.get_ahead(place, name) is None and not tier.has_ahead(place, name)
        try:
            tier.put_ahead(place, encode(entry))
        except NotStored:
            return  # it keeps none
        for one in (tier, open_tier()):
            assert one.get_ahead(place, name) == encode(entry) and one.has_ahead(place, name)
            assert one.get(_digest(entry)) is None and list(one.scan()) == []
            assert one.get_ahead(elsewhere, name) is None
        tier.reject_ahead(place)
        assert tier.get_ahead(place, name) is None

    def test_a_chain_finds_what_another_chain_put(self, open_tier: MakeTier) -> None:
        entry = sample_entry(1)
        first = TierChain([open_tier()])
        assert first.put(entry) and first.flush(60)
        tier = open_tier()
        chain = TierChain([tier], lookup_seconds=30)  # the machine may be busy
        assert chain.find(_digest(entry), entry.facts.name) == (entry, tier.origin)

    def test_a_lock_is_held_by_one_at_a_time(self, tier: Tier, open_tier: MakeTier) -> None:
        digest = _digest(sample_entry(1))
        lock, other = tier.lock(digest), open_tier().lock(digest)
        if lock is None or other is None:
            assert lock is other, "a tier has locks or has none"
            return
        lock.acquire(1)
        with pytest.raises(LockUnavailable):
            other.acquire(0.01)
        lock.release()
        other.acquire(1)
        other.release()
