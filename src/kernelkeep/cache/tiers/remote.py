"""A shared store as a tier: the same entries as on disk, each in a signed envelope, under `programs/<fingerprint>/<digest>`.

What is not signed by a trusted key is `NotTrusted`, before any decoder sees a byte. It is never deleted in the store: a reader
that trusts other keys must not destroy what others use. It is hidden here until an entry of that key is put again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ...remote.address import Remote, open_store
from ...remote.deadline import DeadlineExceeded, DeadlineThreads
from ...remote.names import LEASES
from ...remote.signing import Keys, Refused
from ...storage.files import Damaged
from ..folder_description import FolderDescription, describe_folder
from .remote_lock import CALL_SECONDS, RemoteLock
from .tier import NotStored, NotTrusted, Place, Tier

if TYPE_CHECKING:
    from ...remote.lease import State
    from ...remote.store import Store

T = TypeVar("T")

WRITE_TIMEOUT_SECONDS = (
    10.0  # in the background, and for a batch; a lookup's own limit is the remote's `timeout_seconds`
)
_BATCH = 256
_MOST_THREADS = 64
_KIND = "program"


def stored_name(fingerprint: str, digest: str) -> str:
    """Under which name a store has an entry."""
    return f"programs/{fingerprint}/{digest}"


def signed_name(fingerprint: str, digest: str) -> str:
    """Which name its signature binds."""
    return f"{fingerprint}/{digest}"


class RemoteTier(Tier):
    """Entries of one fingerprint in a shared store. Making one asks the server nothing.

    Where `remote` has a `timeout_seconds` of its own, a lookup takes no longer than that either. What is `described` is stored
    with the first entry, for machines that pull the programs of a GPU that they have not.
    """

    in_background = True

    def __init__(
        self,
        remote: Remote,
        keys: Keys,
        fingerprint: str,
        name: str = "remote",
        described: FolderDescription | None = None,
    ) -> None:
        self.name = name
        self.remote = remote
        self.keys = keys
        self.fingerprint = fingerprint
        self.read_only = remote.read_only
        # Who looks up stops waiting long before the store's own limit. The call goes on and leaves an open connection behind:
        # making one, with TLS and far away, takes longer than a lookup may.
        self._patient_seconds = max(WRITE_TIMEOUT_SECONDS, remote.timeout_seconds)
        self._store = open_store(msgspec.structs.replace(remote, timeout_seconds=self._patient_seconds))
        self._threads = DeadlineThreads(_MOST_THREADS)
        self._to_describe = described
        self._aborting = False
        self._hidden: set[str] = set()
        self._lock = threading.Lock()

    @property
    def location(self) -> str:
        """The address without its secrets."""
        return self.remote.location

    def _ask(self, work: Callable[[Store], T], seconds: float | None = None) -> T:
        """Ask with the time limit of a lookup."""
        limit = min(self.remote.timeout_seconds, seconds if seconds is not None else self.remote.timeout_seconds)
        return self._call(self._store, work, limit)

    def _ask_patiently(self, work: Callable[[Store], T]) -> T:
        return self._call(self._store, work, self._patient_seconds)

    def _call(self, store: Store, work: Callable[[Store], T], seconds: float) -> T:
        store.prepare()  # loading a library is not the server's time
        try:
            return self._threads.call(lambda: work(store), seconds)
        except DeadlineExceeded:
            self._abort_later(store)
            raise

    def _abort_later(self, store: Store) -> None:
        """End calls that nobody waits for if they go on for too long: a server that keeps sending would fill the memory."""
        with self._lock:
            if self._aborting:
                return
            self._aborting = True

        def abort() -> None:
            self._aborting = False
            if self._threads.longest_seconds >= self._patient_seconds:
                store.abort()

        timer = threading.Timer(self._patient_seconds + 0.5, abort)
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # the interpreter is ending, and the calls with it
            timer.start()

    # --- entries

    def open(self) -> None:
        """After a failure: connect, with time for it, and then see whether the server answers as fast as a lookup needs it."""
        name = stored_name(self.fingerprint, "none")
        self._ask_patiently(lambda store: store.get(name))
        self._call(self._lease_store, lambda store: store.get(name), self._patient_seconds)
        self._ask(lambda store: store.get(name))

    def get(self, digest: str) -> bytes | None:
        """The bytes of an entry whose signature holds."""
        return self.get_within(digest, "", None, self.remote.timeout_seconds)

    def get_within(self, digest: str, name: str, place: Place | None, seconds: float) -> bytes | None:
        """The same within a time limit."""
        path = self._path(digest, place)
        if path in self._hidden:
            return None
        data = self._ask(lambda store: store.get(f"programs/{path}"), seconds)
        return None if data is None else self._opened(path, data)

    def get_ahead(self, place: Place, name: str) -> bytes | None:
        """A program that was compiled ahead for an architecture."""
        return self.get_within(place.digest, name, place, self.remote.timeout_seconds)

    def get_many(self, wanted: Sequence[tuple[str, Place | None]]) -> list[bytes | Damaged | None]:
        """The first one with the time limit of a lookup, so that a server that is gone costs no more; the rest in batches."""
        paths = [self._path(digest, place) for digest, place in wanted]
        asked = [path for path in dict.fromkeys(paths) if path not in self._hidden]
        found: dict[str, bytes] = {}
        if asked:
            found |= self._ask(lambda store: store.get_many([f"programs/{asked[0]}"]))
        for start in range(1, len(asked), _BATCH):
            names = [f"programs/{path}" for path in asked[start : start + _BATCH]]
            found |= self._ask_patiently(lambda store, names=names: store.get_many(names))  # type: ignore[misc]
        return [self._opened_or_damage(path, found.get(f"programs/{path}")) for path in paths]

    def put(self, digest: str, data: bytes) -> None:
        """Seal the bytes of an entry and store them."""
        self._put(self._path(digest, None), data)

    def put_ahead(self, place: Place, data: bytes) -> None:
        """The same for a program that was compiled ahead."""
        self._put(self._path(place.digest, place), data)

    def _put(self, path: str, data: bytes) -> None:
        if self.read_only:
            raise NotStored("it is used read-only")
        if not self.keys.can_seal:
            raise NotStored("no key signs here; `kernelkeep keys new` makes one")
        ttl = self.remote.ttl_seconds
        sealed = self.keys.seal(_KIND, path, data, ttl)
        self._ask_patiently(lambda store: store.put(f"programs/{path}", sealed, ttl))
        if (described := self._to_describe) is not None:
            self._ask_patiently(lambda store: describe_folder(store, self.keys, described, ttl))
            self._to_describe = None
        with self._lock:
            self._hidden.discard(path)

    def delete(self, digest: str) -> None:
        """Remove an entry from the store."""
        self._ask_patiently(lambda store: store.delete(f"programs/{self._path(digest, None)}"))

    def reject(self, digest: str) -> None:
        """Hide an entry here until it is put again. The store keeps it: it may be good for others."""
        with self._lock:
            self._hidden.add(self._path(digest, None))

    def reject_ahead(self, place: Place) -> None:
        """The same for a program that was compiled ahead."""
        with self._lock:
            self._hidden.add(self._path(place.digest, place))

    def scan(self) -> Iterator[str]:
        """The digests of this fingerprint's entries, without those that are hidden."""
        prefix = stored_name(self.fingerprint, "")
        names = self._ask_patiently(lambda store: list(store.list(prefix)))
        found = (name[len(prefix) :] for name in names)
        return (digest for digest in found if signed_name(self.fingerprint, digest) not in self._hidden)

    def lock(self, digest: str) -> RemoteLock | None:
        """A lease in the store. None where nothing will be stored from here, or where the store has no conditional puts."""
        if self.read_only or not self.keys.can_seal:
            return None
        store = self._lease_store
        path = self._path(digest, None)
        lease = store.lease(f"{LEASES}{path}")
        if lease is None:
            return None
        refused: bytes | None = None

        def arrived() -> bool:
            """Whether there is an entry, and another one than that which was refused here before."""
            nonlocal refused
            data = self._call(store, lambda store: store.get(f"programs/{path}"), CALL_SECONDS)
            if data is not None and path in self._hidden:
                refused = refused or data
                if data == refused:
                    return False
                with self._lock:
                    self._hidden.discard(path)
            return data is not None

        def call(attempt: Callable[[], State | None], seconds: float) -> State | None:
            return self._call(store, lambda store: attempt(), seconds)

        return RemoteLock(lease, arrived, call)

    @cached_property
    def _lease_store(self) -> Store:
        # Connections of its own: a question that is given up must not disturb lookups and writes.
        return open_store(
            msgspec.structs.replace(self.remote, timeout_seconds=max(CALL_SECONDS, self.remote.timeout_seconds))
        )

    def close(self) -> None:
        """Close the connections."""
        for store in (self._store, self._lease_store):
            store.close()

    # --- names and envelopes

    def _path(self, digest: str, place: Place | None) -> str:
        return signed_name(self.fingerprint, digest) if place is None else signed_name(place.fingerprint, place.digest)

    def _opened(self, path: str, data: bytes) -> bytes:
        try:
            return self.keys.open(_KIND, path, data)
        except Refused as refusal:
            raise NotTrusted(refusal.kind, str(refusal)) from None

    def _opened_or_damage(self, path: str, data: bytes | None) -> bytes | Damaged | None:
        if data is None:
            return None
        try:
            return self._opened(path, data)
        except Damaged as damage:
            return damage
