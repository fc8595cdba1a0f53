"""What a tier is: a place that keeps the bytes of entries by their digest.

A tier sees digests and bytes. It knows nothing of devices, does not check what it keeps and counts nothing: `TierChain`
decodes, verifies, rejects, counts, back-fills, and skips a tier that fails. A new tier is one file in this folder with a
class that has a `name`, says in `location` where it keeps its entries, and has `get`, `put`, `delete` and `scan`. Test it
with `kernelkeep.testing.TierTests`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol


class Place(NamedTuple):
    """Where a program that was compiled ahead for an architecture is, beside those of this very device.

    `digest` is its key's. `fingerprint`, `folder` and `facts` are the architecture's: its digest, its folder and its fields.
    """

    digest: str
    fingerprint: str
    folder: str
    facts: dict[str, Any]


class NotStored(Exception):
    """`put` did not store this entry, and nothing is wrong with the tier: the entry is too large, for example."""


class NotWritable(Exception):
    """`open` found that the tier can be read and cannot be written to at the moment."""


class CompileLock(Protocol):
    """A lock that one process at a time holds while it compiles. `acquire` raises `LockUnavailable` in time."""

    def acquire(self, timeout_seconds: float) -> None: ...
    def release(self) -> None: ...


class Tier(ABC):
    """A place for entries. Its methods are called from several threads at once.

    Any exception means that the tier does not work at the moment. The chain then does without it for a while: after `open`,
    `get` or `lock` altogether, after `put` for writing. The pause is the first of `retry_seconds` and doubles with each further
    failure up to the second.
    """

    name: str
    origin: str = "remote"  # what `Lease.origin` says of programs from here: "disk" or "remote"
    retry_seconds: tuple[float, float] = (1.0, 60.0)

    @property
    @abstractmethod
    def location(self) -> str:
        """Where the entries are, for people: a folder, or an address without its secrets."""

    @abstractmethod
    def get(self, digest: str) -> bytes | None:
        """The bytes that were put; None where there are none. `Damaged` where something unusable takes their place."""

    @abstractmethod
    def put(self, digest: str, data: bytes) -> None:
        """Keep the bytes of an entry, in place of older ones, visible to readers all at once. May raise `NotStored`."""

    @abstractmethod
    def delete(self, digest: str) -> None:
        """Remove an entry; one that is not there is no error."""

    @abstractmethod
    def scan(self) -> Iterator[str]:
        """The digests of all entries. Those that come or go meanwhile may be missing."""

    # What a tier may do better.

    def open(self) -> None:
        """Get ready. Called before anything else, and again before the first use after a failure. May raise `NotWritable`."""
        return

    def get_named(self, digest: str, name: str) -> bytes | None:
        """`get`, given the program's name, which a tier that files entries by name uses to find them faster."""
        return self.get(digest)

    def reject(self, digest: str) -> None:
        """Take away an entry that failed its check or that the driver refused. A tier may keep a few of them to look at."""
        self.delete(digest)

    def lock(self, digest: str) -> CompileLock | None:
        """The lock under which one process compiles this entry for all that share the tier; None where there is none."""
        return None

    # Programs compiled ahead, which belong to an architecture and not to one device. A tier that has none leaves these out.

    def get_ahead(self, place: Place, name: str) -> bytes | None:
        """`get_named` of a program that was compiled ahead."""
        return None

    def put_ahead(self, place: Place, data: bytes) -> None:
        """`put` of a program that was compiled ahead, which a later tier had."""
        raise NotStored("this tier keeps no programs that were compiled ahead")

    def reject_ahead(self, place: Place) -> None:
        """`reject` of a program that was compiled ahead."""
        return
