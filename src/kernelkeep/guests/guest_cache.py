"""`GuestCache`: the bytes that one guest compiled, in the cache folder and in the shared stores."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from functools import partial

from .. import __version__, settings
from ..cache.chain import TierChain
from ..cache.entry import Entry, Facts
from ..cache.key import Key
from ..cache.open_caches import add_open_cache, discard_open_cache
from ..cache.tiers.disk import DiskTier
from ..devices.fingerprint import Fingerprint
from ..storage.files import Damaged
from ..storage.private import Trust
from .key import guest_key
from .turns import Turns


class GuestCache:
    """Entries of one guest. Safe under threads and processes; nothing here raises because of a file or a server.

    `get` after a miss has the turn to compile: who asks for the same in another thread, process or machine waits until `put`,
    at most `wait_seconds`. Every byte that `get` returns was verified, and what came from a shared store was signed by a trusted
    key.
    """

    def __init__(
        self,
        guest: str,
        cache_dir: str | os.PathLike[str] | None = None,
        *,
        max_disk_bytes: int | None = None,
        wait_seconds: float = settings.COMPILE_WAIT_SECONDS,
    ) -> None:
        self.guest = guest
        self.fingerprint = Fingerprint("guest", "", guest, "", "", "")
        trust = Trust(settings.trusted_owner())
        root = settings.cache_dir(cache_dir)
        facts = self.fingerprint.facts
        self.disk = DiskTier(root, self.fingerprint.folder, facts, max_disk_bytes or settings.MAX_DISK_BYTES, trust)
        far = []
        if settings.remotes():
            from ..cache.folder_description import FolderDescription
            from ..cache.remote_tiers import open_remote_tiers, resolve_remotes

            described = FolderDescription(self.fingerprint.folder, facts)
            far = open_remote_tiers(resolve_remotes(None, trust=trust), described)
        seconds = max((tier.remote.timeout_seconds for tier in far), default=settings.REMOTE_TIMEOUT_SECONDS)
        self.chain = TierChain([self.disk, *far], seconds)
        self._wait_seconds = wait_seconds
        self._turns = Turns(wait_seconds)
        self._asked: dict[str, float] = {}  # when each turn began
        add_open_cache(self)

    def key(self, fields: Mapping[str, str]) -> Key:
        """The key of an entry, made of everything that its bytes depend on."""
        return guest_key(self.guest, fields)

    def find(self, key: Key, name: str) -> bytes | None:
        """The verified bytes, or None; never waits for others."""
        hit = self.chain.load(key.digest, name, lambda entry: entry.payload)
        return None if hit is None else hit.value

    def get(self, key: Key, name: str) -> bytes | None:
        """The verified bytes. None: this thread has the turn to compile them, and is expected to `put` them, or to `give_up`."""
        found = self.find(key, name)
        while found is None:
            late: list[bytes] = []
            if self._turns.take(key.digest, partial(self._lock, key, name, late)):
                self._asked[key.digest] = time.monotonic()
                return None
            found = late[0] if late else self.find(key, name)
        return found

    def _lock(self, key: Key, name: str, late: list[bytes], locks: contextlib.ExitStack) -> bool:
        """Take the locks between processes and machines; whether nobody has compiled it meanwhile."""

        def compiled_elsewhere(tiers: int) -> bool:
            hit = self.chain.load(key.digest, name, lambda entry: entry.payload, tiers=tiers)
            if hit is not None:
                late.append(hit.value)
            return hit is not None

        locks.enter_context(self.chain.alone(key.digest, self._wait_seconds, name, found=compiled_elsewhere))
        return not late

    def put(self, key: Key, name: str, payload: bytes, about: Mapping[str, str] | None = None) -> bool:
        """Keep the bytes in every tier, and end the turn; whether any tier stored them.

        `about` is what is known of them now beside the key's fields: `kernelkeep explain` compares it.
        """
        if about:
            key = Key(key.digest, {**key.fields, **about})
        asked = self._asked.pop(key.digest, None)
        seconds, times = (0.0, 0) if asked is None else (time.monotonic() - asked, 0)
        if asked is None and (earlier := self._stored(key, name)) is not None:  # saved again after use
            seconds, times = earlier.compile_seconds, earlier.ripened + 1
        facts = Facts(
            name,
            self.guest,
            self.fingerprint.folder,
            key,
            time.time(),
            seconds,
            __version__,
            payload_bytes=len(payload),
            ripened=times,
        )
        try:
            return self.chain.put(Entry(facts, payload))
        finally:
            self._turns.end(key.digest)

    def _stored(self, key: Key, name: str) -> Facts | None:
        with contextlib.suppress(OSError, Damaged):
            entry = self.disk.folder.read_entry(key.digest, name)
            return None if entry is None else entry.facts
        return None

    def give_up(self, key: Key) -> None:
        """Compiling failed: let others try."""
        self._asked.pop(key.digest, None)
        self._turns.end(key.digest)

    def reject(self, key: Key, name: str, reason: str) -> None:
        """The guest could not use these bytes: do not find them again."""
        self.chain.reject(key.digest, name, reason)

    def delete(self, key: Key) -> bool:
        """Remove an entry from this machine; whether there was one."""
        with contextlib.suppress(OSError):
            if self.disk.folder.has(key.digest):
                self.disk.folder.delete(key.digest)
                return True
        return False

    def __len__(self) -> int:
        """How many entries this machine has."""
        return len(self.disk.folder.files())

    def clear(self) -> None:
        """Remove all entries of this guest from this machine."""
        with contextlib.suppress(OSError):
            self.disk.folder.remove_entries(self.disk.folder.uses())

    def close(self) -> None:
        """Let others compile what this process has not, and wait for writes to shared stores."""
        discard_open_cache(self)
        self._turns.end_all()
        self.chain.close()

    def lose(self) -> None:
        """In a forked child: the turns are the parent's."""
        self._turns.forget()

    def save_counts(self) -> None:
        """Nothing: the counts of a guest's lookups are its own."""


_opening = threading.Lock()
_opened: dict[str, GuestCache] = {}


def guest_cache(guest: str) -> GuestCache:
    """The entries of a guest, opened once in a process."""
    with _opening:
        found = _opened.get(guest)
        if found is None:
            found = _opened[guest] = GuestCache(guest)
        return found
