"""What a store is: a place that keeps bytes under names, and that several machines share.

A store sees names and bytes. It signs nothing and retries nothing: who uses it seals what goes in, opens what comes out
(`signing.py`), sets a deadline (`deadline.py`) and decides what a failure means. Names are ASCII, with "/" between their parts.

A new kind of store is one file in this folder and one line in `address.py`; `kernelkeep.testing.StoreTests` says what it must do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .lease import StoreLease

BULK_TIMEOUT_SECONDS = 60.0  # without any progress of an upload or download


class Versioned(NamedTuple):
    """Bytes, and what the store calls this version of them."""

    data: bytes
    version: str


class Store(ABC):
    """Bytes under names. Its methods are called from several threads at once; any exception means that the store failed.

    What an exception says may be shown to people, so it holds no secret. Making a store asks the server nothing.
    """

    keeps_ttl: bool = False  # whether the store itself removes what is past its `ttl_seconds`

    @property
    @abstractmethod
    def location(self) -> str:
        """The address for people, without its secrets."""

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """The bytes under a name; None where there are none. A store may raise `Damaged` for far too many of them."""

    @abstractmethod
    def put(self, name: str, data: bytes, ttl_seconds: float | None = None) -> None:
        """Keep bytes, in place of older ones, visible to readers all at once. A store without expiry ignores `ttl_seconds`."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove what is under a name; nothing there is no error."""

    @abstractmethod
    def list(self, prefix: str) -> Iterator[str]:
        """The names that begin with `prefix`. Those that come or go meanwhile may be missing."""

    # What a store may do better.

    def get_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """What is there of several names, in as few round trips as the store can."""
        found = ((name, self.get(name)) for name in names)
        return {name: data for name, data in found if data is not None}

    def upload(self, name: str, path: Path, head: bytes = b"") -> None:
        """`put` of `head` and a file's contents, which may be larger than memory."""
        self.put(name, head + path.read_bytes())

    def download(self, name: str, path: Path) -> bool:
        """Write what is under a name to a new file; False where there is nothing."""
        data = self.get(name)
        if data is None:
            return False
        path.write_bytes(data)
        return True

    def copy(self, name: str, to: str) -> bool:
        """`put` under another name what is under this one, inside the store where it can; False where there is nothing."""
        data = self.get(name)
        if data is None:
            return False
        self.put(to, data)
        return True

    def prepare(self) -> None:
        """Load the libraries it needs, so that the first call's time is the server's. Asks the server nothing."""
        return

    def abort(self) -> None:
        """Nobody waits any longer for the calls that run now: end them where that is possible."""
        return

    def close(self) -> None:
        """Give up connections. A later call opens new ones."""
        return

    # What leases are made of. A store that cannot do this has `conditional = False`. A version is never empty.

    conditional: bool = False

    def create(self, name: str, data: bytes, ttl_seconds: float | None = None) -> str | None:
        """`put` where nothing is under the name yet: its version, or None where something is. One of many callers succeeds."""
        raise NotImplementedError

    def get_versioned(self, name: str) -> Versioned | None:
        """`get`, with the version that `replace` compares."""
        raise NotImplementedError

    def replace(self, name: str, data: bytes, version: str, ttl_seconds: float | None = None) -> str | None:
        """`put` where the name still has this version: the new version, or None where it changed or is gone."""
        raise NotImplementedError

    def lease(self, name: str, duration_seconds: float | None = None) -> StoreLease | None:
        """A lease on a name; None where the store cannot compare before it writes."""
        from .lease import DURATION_SECONDS, ConditionalLease

        return ConditionalLease(self, name, duration_seconds or DURATION_SECONDS) if self.conditional else None
