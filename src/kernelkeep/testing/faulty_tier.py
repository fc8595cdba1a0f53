"""`FaultyTier`: a tier that fails on demand, to test what a cache does then. `DictTier`: a tier without a place."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator

from ..cache.tiers.tier import CompileLock, NotStored, Tier

__all__ = ["DictTier", "FaultyTier", "changed", "truncated"]


class DictTier(Tier):
    """Entries in a dict, which several tiers may share as several machines share a server."""

    def __init__(self, name: str = "dict", entries: dict[str, bytes] | None = None) -> None:
        self.name = name
        self.entries = {} if entries is None else entries

    @property
    def location(self) -> str:
        """A dict of this process."""
        return f"the dict of {self.name}"

    def get(self, digest: str) -> bytes | None:
        """The bytes."""
        return self.entries.get(digest)

    def put(self, digest: str, data: bytes) -> None:
        """Keep the bytes."""
        self.entries[digest] = data

    def delete(self, digest: str) -> None:
        """Forget them."""
        self.entries.pop(digest, None)

    def scan(self) -> Iterator[str]:
        """The digests."""
        return iter(list(self.entries))


def truncated(data: bytes) -> bytes:
    """Without the second half."""
    return data[: len(data) // 2]


def changed(data: bytes) -> bytes:
    """With one bit that is another."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


class FaultyTier(Tier):
    """Another tier, whose calls fail, take long or give wrong answers when it is told so.

    `failing`: names of methods that raise `error`. `delay_seconds`: how long each call takes more. `lie`: changes the bytes that
    `get` found (`truncated`, `changed`, or your own). `answer_for`: `get` gives the bytes of this digest, whatever is asked for.
    `full`: `put` stores nothing and says so. `forgetful`: it stores nothing and says nothing. `calls` counts the calls of each
    method, those that failed included. Without any of them it does what the other tier does.
    """

    def __init__(self, tier: Tier, *, retry_seconds: tuple[float, float] | None = None) -> None:
        self.tier = tier
        self.name = tier.name
        self.origin = tier.origin
        self.retry_seconds = retry_seconds or tier.retry_seconds
        self.failing: set[str] = set()
        self.error: Exception = ConnectionError("the tier is down")
        self.delay_seconds = 0.0
        self.lie: Callable[[bytes], bytes] | None = None
        self.answer_for: str | None = None
        self.full = False
        self.forgetful = False
        self.calls: Counter[str] = Counter()

    def _begin(self, call: str) -> None:
        self.calls[call] += 1
        if self.delay_seconds:
            time.sleep(self.delay_seconds)
        if call in self.failing:
            raise self.error

    @property
    def location(self) -> str:
        """Where the other tier is."""
        return self.tier.location

    def open(self) -> None:
        """Open the other tier."""
        self._begin("open")
        self.tier.open()

    def get(self, digest: str) -> bytes | None:
        """What the other tier has, or a lie."""
        return self.get_named(digest, "")

    def get_named(self, digest: str, name: str) -> bytes | None:
        """The same."""
        self._begin("get")
        data = self.tier.get_named(self.answer_for or digest, name)
        return self.lie(data) if data is not None and self.lie is not None else data

    def put(self, digest: str, data: bytes) -> None:
        """Put it into the other tier, unless this one is `full` or `forgetful`."""
        self._begin("put")
        if self.full:
            raise NotStored("the tier is full")
        if not self.forgetful:
            self.tier.put(digest, data)

    def delete(self, digest: str) -> None:
        """Delete it in the other tier."""
        self._begin("delete")
        self.tier.delete(digest)

    def reject(self, digest: str) -> None:
        """Reject it in the other tier."""
        self._begin("reject")
        self.tier.reject(digest)

    def scan(self) -> Iterator[str]:
        """What the other tier has."""
        self._begin("scan")
        return self.tier.scan()

    def lock(self, digest: str) -> CompileLock | None:
        """The other tier's lock."""
        self._begin("lock")
        return self.tier.lock(digest)
