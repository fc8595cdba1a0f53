"""What one process did with a guest's entries, on its way into the sums of all processes: by guest, and of the cache folder."""

from __future__ import annotations

import threading
from functools import partial

from ..cache.chain import TierChain
from ..cache.lifetime_counts import LifetimeCounts
from ..cache.stats import CacheStats, Counters, guest_counter, typed_counts
from ..cache.tiers.disk import DiskTier


class _Sums:
    """The sums of all processes, where each count of a guest is added twice: to its own sums, and to those of all programs."""

    def __init__(self, guest: str, disk: DiskTier) -> None:
        self._guest = guest
        self._disk = disk
        self.read_sums = disk.read_sums
        self.note_counts = disk.note_counts

    def add_to_sums(self, counts: dict[str, float]) -> bool:
        own = {guest_counter(self._guest, name): value for name, value in counts.items()}
        return self._disk.add_to_sums(counts | own)


class _Saved:
    """The seconds that hits saved. A hit is counted here, so it costs little."""

    __slots__ = ("_lock", "seconds")

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal's handler may look while its own thread counts
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        with self._lock:
            self.seconds += seconds


class GuestCounts:
    """Safe under threads. A cache that is dropped without being closed loses none of its counts."""

    def __init__(self, guest: str, disk: DiskTier, chain: TierChain) -> None:
        counters, saved = Counters(), _Saved()
        self.add = counters.add
        self.saved = saved.add
        self.read = partial(_read, counters, saved, chain)
        self._lifetime = LifetimeCounts(self.read, _Sums(guest, disk))

    def stats(self, on_disk: int, disk_bytes: int) -> CacheStats:
        """The counts of this process."""
        return CacheStats(on_disk=on_disk, disk_bytes=disk_bytes, **typed_counts(self.read()))

    def save(self, *, note: bool = False) -> None:
        """Add what was counted since the last time; with `note` to the diary, too."""
        self._lifetime.save(note=note)

    def abandon(self) -> None:
        """Have somebody else save what is left."""
        self._lifetime.abandon()


def _read(counters: Counters, saved: _Saved, chain: TierChain) -> dict[str, float]:
    counts = counters.read()
    counts["compile_seconds_saved"] = saved.seconds
    for name, count in chain.tier_counts().items():
        counts[name] += count
    return counts
