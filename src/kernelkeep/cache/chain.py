"""`TierChain`: looks an entry up in one tier after the other.

It trusts no tier: every byte of an entry is verified, and an entry that fails, or that the driver refuses, is rejected in its
tier and counted. An entry found in a later tier is written to the tiers before it. No tier breaks the caller's program: one
that fails is a miss, is left alone for a while, and is tried again later. The user is warned once.
"""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec

from ..errors import BinaryRejected, CacheWarning
from ..escaping import escaped
from ..storage.files import Damaged, Untrusted
from ..storage.locks import LockUnavailable
from .entry import LARGEST_PAYLOAD, Entry, Facts, decode, encode
from .log import log
from .tiers.tier import NotStored, NotWritable, Place, Tier

T = TypeVar("T")
_Places = Callable[[], Sequence[Place]]


class TierCounts(msgspec.Struct):
    """What the chain did with one tier.

    `rejected`: entries that failed their check, or that the driver refused. `failed`: calls that raised. `skipped`: lookups
    and writes that did without the tier, because it had failed a short time before. `filled`: how many of the entries
    `stored` came from a later tier.
    """

    hits: int = 0
    misses: int = 0
    stored: int = 0
    filled: int = 0
    rejected: int = 0
    failed: int = 0
    skipped: int = 0


class Hit(NamedTuple, Generic[T]):
    """What `TierChain.load` made of an entry, the entry's facts, and the origin of the tier it was in.

    `place` is where it was found if it was compiled ahead for an architecture.
    """

    value: T
    facts: Facts
    origin: str
    place: Place | None = None


class _Pause:
    """The time during which a tier is left alone after a failure. It doubles with each failure in a row."""

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first, self._longest = first_seconds, longest_seconds
        self._next = first_seconds
        self._until = 0.0

    def begin(self) -> None:
        self._until = time.monotonic() + self._next
        self._next = min(2 * self._next, self._longest)

    def end(self) -> None:
        self._next = self._first

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._until


class _Member:
    """A tier of the chain, and how it does."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.counts = TierCounts()
        self.opened = False
        self.opening = threading.Lock()
        self.use = _Pause(*tier.retry_seconds)
        self.writing = _Pause(*tier.retry_seconds)
        self.warned: set[str] = set()


class TierChain:
    """Entries in several tiers, the nearest first. Safe under threads; no method raises because of a tier."""

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self._members = [_Member(tier) for tier in tiers]
        self._lock = threading.Lock()
        for member in self._members:
            self._is_ready(member)

    # --- looking up

    def find(self, digest: str, name: str) -> tuple[Entry, str] | None:
        """A verified entry and the origin of its tier. `name` only helps to find it, and names it in the log."""
        found = self.locate(digest, name)
        return None if found is None else (found.value, found.origin)

    def locate(self, digest: str, name: str, ahead: _Places = tuple) -> Hit[Entry] | None:
        """What `load` would find, and where. Nothing is counted as a hit."""
        for member in self._members:
            for place in self._places(digest, ahead):
                found = self._fetch(member, digest, name, place)
                if found is not None:
                    return Hit(found[1], found[1].facts, member.tier.origin, place)
        return None

    def load(self, digest: str, name: str, use: Callable[[Entry], T], ahead: _Places = tuple) -> Hit[T] | None:
        """What `use` makes of the first entry that it does not refuse with `BinaryRejected`.

        `ahead` returns where else the program may be, compiled ahead for an architecture. Each tier is asked there too before
        the next tier: what is near is faster than what is far.
        """
        missed: list[_Member] = []
        for member in self._members:
            for place in self._places(digest, ahead):
                found = self._fetch(member, digest, name, place)
                if found is None:
                    continue
                data, entry = found
                try:
                    value = use(entry)
                except BinaryRejected as error:
                    self._reject(member, digest, name, str(error), place)
                else:
                    self._count(member, "hits")
                    for earlier in missed:
                        if self._store(earlier, digest, name, data, place):
                            self._count(earlier, "filled")
                    return Hit(value, entry.facts, member.tier.origin, place)
            missed.append(member)
        return None

    @staticmethod
    def _places(digest: str, ahead: _Places) -> Iterator[Place | None]:
        """None, which is the key of this very device, then what `ahead` returns, which is not called before it is needed."""
        yield None
        yield from ahead()

    def _fetch(self, member: _Member, digest: str, name: str, place: Place | None = None) -> tuple[bytes, Entry] | None:
        if not (member.opened or self._is_ready(member)):
            self._count(member, "skipped")
            return None
        tier = member.tier
        try:
            data = tier.get_named(digest, name) if place is None else tier.get_ahead(place, name)
            if data is not None:
                return data, decode(data, digest if place is None else place.digest)
            if place is None:
                self._count(member, "misses")
        except Damaged as damage:
            if isinstance(damage, Untrusted):
                text = f"{name} is not read from {tier.location} and set aside: {damage}; it is compiled again"
                self._warn(member, "entry", text)
            self._reject(member, digest, name, str(damage), place)
        except Exception as error:
            self._fail(member, error)
        return None

    # --- writing

    def put(self, entry: Entry) -> bool:
        """Write an entry to every tier; whether any of them stored it."""
        name = entry.facts.name
        if len(entry.payload) > LARGEST_PAYLOAD:
            return False
        if not self.is_writable:
            for member in self._members:
                self._count(member, "skipped")
            return False
        try:
            data = encode(entry)
        except UnicodeError as error:
            log(repr(name), "cannot be written down: %s", error)
            return False
        digest = entry.facts.key.digest
        return sum(self._store(member, digest, name, data) for member in self._members) > 0

    def _store(self, member: _Member, digest: str, name: str, data: bytes, place: Place | None = None) -> bool:
        if not self._is_writable(member):
            self._count(member, "skipped")
            return False
        try:
            if place is None:
                member.tier.put(digest, data)
            else:
                member.tier.put_ahead(place, data)
        except NotStored as error:
            log(name, "not saved in the %s tier: %s", member.tier.name, error)
            return False
        except Exception as error:
            self._fail(member, error, only_writing=True)
            return False
        member.writing.end()
        self._count(member, "stored")
        return True

    def reject(self, digest: str, name: str, reason: str, place: Place | None = None) -> None:
        """Take an entry out of every tier: the driver refused it after it had been loaded."""
        for member in self._members:
            if self._fetch(member, digest, name, place) is not None:
                self._reject(member, digest, name, reason, place)

    def _reject(self, member: _Member, digest: str, name: str, reason: str, place: Place | None = None) -> None:
        self._count(member, "rejected")
        log(name, "the entry in the %s tier is rejected: %s", member.tier.name, reason)
        try:
            if place is None:
                member.tier.reject(digest)
            else:
                member.tier.reject_ahead(place)
        except Exception as error:  # the next lookup rejects it again
            self._count(member, "failed")
            log(name, "the %s tier could not remove it: %s", member.tier.name, error)

    @contextlib.contextmanager
    def alone(self, digest: str, timeout_seconds: float, name: str = "") -> Iterator[bool]:
        """Keep other processes from compiling the same key during the block. False: no lock could be had, go on anyway."""
        with contextlib.ExitStack() as held:
            locked = False
            for member in self._members:
                try:
                    lock = member.tier.lock(digest) if self._is_ready(member) else None
                    if lock is not None:
                        lock.acquire(timeout_seconds)
                        held.callback(lock.release)
                        locked = True
                except LockUnavailable as error:
                    log(name or digest[:12], "going on without a lock: %s", error)
                except Exception as error:
                    self._fail(member, error)
            yield locked

    def maintain(self, tier: Tier, work: Callable[[], T], otherwise: T) -> T:
        """The result of other `work` on a tier, such as pruning; `otherwise` where the tier is not ready or fails."""
        member = next(member for member in self._members if member.tier is tier)
        if not self._is_ready(member):
            return otherwise
        try:
            return work()
        except OSError as error:
            self._fail(member, error, only_writing=True)
            return otherwise

    # --- tiers that fail

    def _is_ready(self, member: _Member) -> bool:
        """Whether the tier may be used now. One that failed is opened again when its pause is over."""
        if member.opened:
            return True
        with member.opening:
            if member.opened:
                return True
            if not member.use.is_over:
                return False
            try:
                member.tier.open()
            except NotWritable as error:
                self._fail(member, error, only_writing=True)
            except Exception as error:
                self._fail(member, error)
                return False
            member.use.end()
            member.opened = True
            return True

    def _is_writable(self, member: _Member) -> bool:
        return self._is_ready(member) and member.writing.is_over

    def _fail(self, member: _Member, error: Exception, *, only_writing: bool = False) -> None:
        """Leave the tier alone for a while, and warn once."""
        self._count(member, "failed")
        member.writing.begin()
        if not only_writing:
            member.use.begin()
            member.opened = False
        tier = member.tier
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if len(self._members) == 1:
            text = f"programs cannot be kept in {tier.location} ({reason}); they are kept in memory only"
        else:
            text = f"the {tier.name} tier in {tier.location} fails ({reason}); the cache does without it for a while"
        self._warn(member, "tier", text)

    def _warn(self, member: _Member, kind: str, text: str) -> None:
        """Log it; the first of its kind is a warning."""
        with self._lock:
            first = kind not in member.warned
            member.warned.add(kind)
        log(member.tier.name, "%s", text)
        if first:
            with contextlib.suppress(Warning):  # where warnings are errors, this one still breaks nothing
                warnings.warn(escaped(text), CacheWarning, stacklevel=2)

    # --- counting

    def _count(self, member: _Member, what: str) -> None:
        with self._lock:
            setattr(member.counts, what, getattr(member.counts, what) + 1)

    def counts(self) -> dict[str, TierCounts]:
        """What was done with each tier so far, by its name."""
        with self._lock:
            return {member.tier.name: msgspec.structs.replace(member.counts) for member in self._members}

    def hits(self, origin: str) -> int:
        """Hits in the tiers of an origin."""
        return sum(member.counts.hits for member in self._members if member.tier.origin == origin)

    @property
    def rejected(self) -> int:
        """Entries rejected in any tier."""
        return sum(member.counts.rejected for member in self._members)

    @property
    def is_writable(self) -> bool:
        """Whether a `put` now would be tried in at least one tier."""
        return any(self._is_writable(member) for member in self._members)
