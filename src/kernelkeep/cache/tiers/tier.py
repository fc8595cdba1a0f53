"""What a tier is: a place that keeps the bytes of entries by their digest.

A tier sees digests and bytes. It knows nothing of devices, does not check what it keeps and counts nothing: `TierChain`
decodes, verifies, rejects, counts, back-fills, and skips a tier that fails. A new tier is one file in this folder with a
class that has a `name`, says in `location` where it keeps its entries, and has `get`, `put`, `delete` and `scan`. Test it
with `kernelkeep.testing.TierTests`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ...storage.files import Damaged

if TYPE_CHECKING:
    from ...words import ProgramOrigin


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


class NotTrusted(Damaged):
    """An entry is there, and nobody who is trusted here signed it. `kind` says why, in one word."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class NotWritable(Exception):
    """`open` found that the tier can be read and cannot be written to at the moment."""


class CompileLock(Protocol):
    """A lock that one process at a time holds while it compiles. `acquire` raises `LockUnavailable` in time."""

    def acquire(self, timeout_seconds: float) -> None: ...
    def release(self) -> None: ...


@runtime_checkable
class SharedLock(CompileLock, Protocol):
    """A lock between machines, released once the tier has stored what was compiled under it.

    `acquire` also returns, without the lock, when the entry has arrived. Its first try takes at most `first_seconds`. `waited`:
    whether somebody else had the lock then.
    """

    waited: bool

    def acquire(self, timeout_seconds: float, first_seconds: float = ...) -> None: ...
    def abandon(self) -> None:
        """Release it because nothing was stored: who waits now compiles, and does not wait for the next holder."""

    def drop(self) -> None:
        """Leave it to run out, because the tier does not answer."""


class Tier(ABC):
    """A place for entries. Its methods are called from several threads at once.

    Any exception means that the tier does not work at the moment. The chain then does without it for a while: after `open`,
    `get` or `lock` altogether, after `put` for writing. The pause is the first of `retry_seconds` and doubles with each further
    failure up to the second.
    """

    name: str
    origin: ProgramOrigin = "remote"  # what `Lease.origin` says of programs from here: "disk" or "remote"
    retry_seconds: tuple[float, float] = (1.0, 60.0)
    read_only: bool = False  # whether the chain writes nothing here
    # Whether the tier is far away. The chain writes to it in the background, asks for entries with a time limit, and opens
    # it only after a failure, in the background too: `open` then finds out whether it works again.
    in_background: bool = False

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

    def prepare(self) -> None:
        """Load what the tier needs here, such as a client's library: that is not part of the time a lookup may take."""
        return

    def open(self) -> None:
        """Get ready. Called before anything else, and again before the first use after a failure. May raise `NotWritable`."""
        return

    def get_usual(self, digest: str, name: str) -> bytes | None:
        """`get_named` where it takes next to no time. None says nothing, and whatever is raised: `get_named` is called then."""
        return None

    def get_named(self, digest: str, name: str) -> bytes | None:
        """`get`, given the program's name, which a tier that files entries by name uses to find them faster."""
        return self.get(digest)

    def get_within(self, digest: str, name: str, place: Place | None, seconds: float) -> bytes | None:
        """`get_named` or `get_ahead` that takes at most so long, for a tier that is far away."""
        return self.get_named(digest, name) if place is None else self.get_ahead(place, name)

    def get_many(self, wanted: Sequence[tuple[str, Place | None]]) -> list[bytes | Damaged | None]:
        """Several entries, in order and in as few round trips as possible; `Damaged` for one that cannot be used."""
        found: list[bytes | Damaged | None] = []
        for digest, place in wanted:
            try:
                found.append(self.get(digest) if place is None else self.get_ahead(place, ""))
            except Damaged as damage:
                found.append(damage)
        return found

    def has(self, digest: str, name: str) -> bool:
        """Whether an entry seems to be there. Nothing of it is read where that can be helped."""
        return self.get_named(digest, name) is not None

    def close(self) -> None:
        """Give up what is held open. A later call works all the same."""
        return

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

    def has_ahead(self, place: Place, name: str) -> bool:
        """`has` of a program that was compiled ahead."""
        return self.get_ahead(place, name) is not None

    def put_ahead(self, place: Place, data: bytes) -> None:
        """`put` of a program that was compiled ahead, which a later tier had."""
        raise NotStored("this tier keeps no programs that were compiled ahead")

    def reject_ahead(self, place: Place) -> None:
        """`reject` of a program that was compiled ahead."""
        return
