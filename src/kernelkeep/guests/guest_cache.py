"""`GuestCache`: the bytes that one guest compiled, in the cache folder and in the shared stores."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from functools import partial

from .. import __version__, settings
from ..activity import live
from ..activity.facts import Facts as LiveFacts
from ..cache.chain import Hit, TierChain
from ..cache.diary_notes import note_compile
from ..cache.entry import Entry, Facts
from ..cache.key import Key
from ..cache.open_caches import add_open_cache, discard_open_cache
from ..cache.stats import CacheStats
from ..cache.tiers.disk import DiskTier
from ..devices.fingerprint import Fingerprint
from ..platforms import system
from ..storage.files import Damaged
from .key import guest_key
from .parts import Parts, open_parts
from .process_end import at_process_end

_MOST_KNOWN = 256  # entries that `known` looks at, in half a millisecond


class GuestCache:
    """Entries of one guest. Safe under threads, processes and forks; nothing here raises because of a file or a server.

    `get` after a miss has the turn to compile: who asks for the same in another thread, process or machine waits until `put`,
    at most `wait_seconds`. Every byte that `get` returns was verified, and what came from a shared store was signed by a trusted
    key. In a forked process `put` returns when the shared stores have the bytes: such a process may end without a word.
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
        self._root = settings.cache_dir(cache_dir)
        self._max_disk_bytes = max_disk_bytes or settings.MAX_DISK_BYTES
        self._wait_seconds = wait_seconds
        self._closed = self._forked = False
        self._opening = threading.Lock()
        self._parts: Parts | None = None
        self._open()

    def _open(self) -> Parts:
        with self._opening:
            if self._parts is None:
                self._parts = open_parts(self.fingerprint, self._root, self._max_disk_bytes, self._wait_seconds)
                add_open_cache(self)
                live.add("cache", self, GuestCache.live_facts)
                if self._forked:
                    at_process_end(self.close)
            return self._parts

    @property
    def disk(self) -> DiskTier:
        """The tier on disk."""
        return (self._parts or self._open()).disk

    @property
    def chain(self) -> TierChain:
        """The lookup through the tiers."""
        return (self._parts or self._open()).chain

    def key(self, fields: Mapping[str, str]) -> Key:
        """The key of an entry, made of everything that its bytes depend on."""
        return guest_key(self.guest, fields)

    # --- looking up

    def find(self, key: Key, name: str) -> bytes | None:
        """The verified bytes, or None; never waits for others."""
        parts = self._parts or self._open()
        found = parts.chain.read(key.digest, name)
        if found is None:
            hit = parts.chain.load(key.digest, name, _payload)
            if hit is None:
                parts.counts.add(misses=1)
                return None
            found = hit.value, hit.facts.compile_seconds
        parts.counts.saved(found[1])
        return found[0]

    def get(self, key: Key, name: str) -> bytes | None:
        """The verified bytes. None: this thread has the turn to compile them, and is expected to `put` them, or to `give_up`."""
        parts = self._parts or self._open()
        digest = key.digest
        found = parts.chain.read(digest, name)
        if found is not None:
            parts.counts.saved(found[1])
            return found[0]
        hit = parts.chain.load(digest, name, _payload)
        waited = False
        while hit is None:
            late: list[Hit[bytes]] = []
            waited = True
            if parts.turns.take(digest, partial(self._lock, parts, digest, name, late)):
                parts.asked[digest] = time.monotonic()
                parts.counts.add(misses=1)
                return None
            hit = late[0] if late else parts.chain.load(digest, name, _payload)
        if waited:
            parts.counts.add(waits=1)
        parts.counts.saved(hit.facts.compile_seconds)
        return hit.value

    def _lock(self, parts: Parts, digest: str, name: str, late: list[Hit[bytes]], locks: contextlib.ExitStack) -> bool:
        """Take the locks between processes and machines; whether nobody has compiled it meanwhile."""

        def compiled_elsewhere(tiers: int) -> bool:
            hit = parts.chain.load(digest, name, _payload, tiers=tiers)
            if hit is not None:
                late.append(hit)
            return hit is not None

        locks.enter_context(parts.chain.alone(digest, self._wait_seconds, name, found=compiled_elsewhere))
        return not late

    def has(self, key: Key, name: str) -> bool:
        """Whether this machine has an entry under this name, for guests that need no byte of it. Nothing is read."""
        parts = self._parts or self._open()
        found = parts.disk.usable and parts.disk.folder.use(key.digest, name) is not None
        if found:
            parts.chain.count_hit()
        return found

    def known(self, name: str) -> set[str]:
        """The digests of entries under this name that this machine has now, for guests that need no byte of them.

        One that is missing here may be there all the same: `has` knows, and notes that it was used.
        """
        parts = self._parts or self._open()
        return parts.disk.folder.lately_used(name, _MOST_KNOWN) if parts.disk.usable else set()

    def count_hit(self, compile_seconds: float) -> None:
        """The guest's module found on disk, and verified, what an entry holds; its compile took so long."""
        parts = self._parts or self._open()
        parts.chain.count_hit()
        parts.counts.saved(compile_seconds)

    def count_hit_in_memory(self) -> None:
        """The guest's module had the bytes still."""
        (self._parts or self._open()).counts.add(hits_memory=1)

    # --- writing

    def put(self, key: Key, name: str, payload: bytes, about: Mapping[str, str] | None = None) -> bool:
        """Keep the bytes in every tier, and end the turn; whether any tier stored them.

        `about` is what is known of them now beside the key's fields: `kernelkeep explain` compares it.
        """
        parts = self._parts or self._open()
        if about:
            key = Key(key.digest, {**key.fields, **about})
        asked = parts.asked.pop(key.digest, None)
        earlier = self._stored(key, name) if asked is None else None
        seconds, again = (0.0 if asked is None else time.monotonic() - asked), 0
        if earlier is not None:  # saved again after use
            seconds, again = earlier.compile_seconds, earlier.ripened + 1
        facts = Facts(
            name,
            self.guest,
            self.fingerprint.folder,
            key,
            time.time(),
            seconds,
            __version__,
            payload_bytes=len(payload),
            ripened=again,
        )
        try:
            stored = parts.chain.put(Entry(facts, payload))
        finally:
            parts.turns.end(key.digest)
        if again:
            parts.counts.add(ripened=1)
        else:
            parts.counts.add(compiles=1, compile_seconds=seconds)
            if asked is not None:
                note_compile(parts.disk, facts, saves=True)
        if self._forked:
            parts.chain.flush()
        parts.counts.save()
        return stored

    def _stored(self, key: Key, name: str) -> Facts | None:
        with contextlib.suppress(OSError, Damaged):
            entry = self.disk.folder.read_entry(key.digest, name)
            return None if entry is None else entry.facts
        return None

    def give_up(self, key: Key) -> None:
        """Compiling failed: let others try."""
        parts = self._parts or self._open()
        parts.asked.pop(key.digest, None)
        parts.turns.end(key.digest)

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

    # --- counting

    def stats(self) -> CacheStats:
        """What this process did since it opened the cache."""
        parts = self._parts or self._open()
        on_disk, disk_bytes = parts.chain.maintain(parts.disk, parts.disk.count, (0, 0))
        return parts.counts.stats(on_disk, disk_bytes)

    def save_counts(self) -> None:
        """Add to the statistics and the diary of all processes what was counted since the last time."""
        if self._parts is not None:
            self._parts.counts.save(note=True)

    def live_facts(self) -> LiveFacts:
        """What `kernelkeep top` and metrics show of this cache. Waits for nothing, and looks at no file."""
        parts = self._parts
        about = {"device": f"guest:{self.guest}", "device_name": self.guest, "folder": str(self._root)}
        return LiveFacts(about, {} if parts is None else parts.counts.read())

    # --- life

    def close(self) -> None:
        """Let others compile what this process has not, wait for writes to shared stores, and add up the counts."""
        parts = self._parts
        if parts is None:
            return
        self._closed = True
        discard_open_cache(self)
        parts.turns.end_all()
        parts.chain.close()
        parts.counts.save(note=True)
        live.remove(self)

    def __del__(self) -> None:
        parts = getattr(self, "_parts", None)
        if parts is not None and not self._closed:
            parts.counts.abandon()
            live.remove(self)

    def lose(self) -> None:
        """In a forked child: what is open is the parent's. The child opens its own when it is asked for something."""
        self._opening = threading.Lock()
        self._parts = None
        self._forked = True


def _payload(entry: Entry) -> bytes:
    return entry.payload


_opening = threading.Lock()
_opened: dict[str, GuestCache] = {}


def guest_cache(guest: str) -> GuestCache:
    """The entries of a guest, opened once in a process."""
    found = _opened.get(guest)
    if found is None:
        with _opening:
            found = _opened.get(guest)
            if found is None:
                found = _opened[guest] = GuestCache(guest)
    return found


def _in_child() -> None:
    """A thread that is not in this forked process may have held the lock."""
    global _opening
    _opening = threading.Lock()


system.on_fork(after_in_child=_in_child)
