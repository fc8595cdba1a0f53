"""`TierChain`: looks an entry up in one tier after the other.

It trusts no tier: every byte of an entry is verified, and an entry that fails, or that the driver refuses, is rejected in its
tier and counted. An entry found in a later tier is written to the tiers before it. No tier breaks the caller's program: one
that fails is a miss, is left alone for a while, and is tried again later. The user is warned once.

Tiers that are far away (`in_background`) are written to by a thread. A lookup waits for all of them together no longer than
`lookup_seconds`, and whether one that failed works again is found out by the thread: a server that is gone costs one lookup once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from .. import settings
from ..activity.spans import span
from ..errors import BinaryRejected
from ..storage.files import Damaged, Untrusted
from .background import BackgroundTasks, Task
from .chain_member import LookupTime, Member, TierCounts
from .compile_turn import CompileTurn
from .entry import LARGEST_PAYLOAD, Entry, Facts, decode, decode_payload, encode
from .log import log
from .prefetched import NotAsked, Prefetched
from .tiers.tier import NotStored, NotTrusted, Place, Tier

if TYPE_CHECKING:
    from ..words import ProgramOrigin

T = TypeVar("T")
_Places = Callable[[], Sequence[Place]]


class Hit(NamedTuple, Generic[T]):
    """What `TierChain.load` made of an entry, the entry's facts, and the origin of the tier it was in.

    `place` is where it was found if it was compiled ahead for an architecture.
    """

    value: T
    facts: Facts
    origin: ProgramOrigin
    place: Place | None = None


class _NoTimeLeft(Exception):
    """The time of a lookup is used up; the tier was not asked."""


def _open_again(member: Member) -> None:
    member.reopen()


def _nothing() -> None:
    return


def _without_result(work: Callable[[], object]) -> None:
    work()


class TierChain:
    """Entries in several tiers, the nearest first. Safe under threads; no method raises because of a tier."""

    def __init__(self, tiers: Sequence[Tier], lookup_seconds: float = settings.REMOTE_TIMEOUT_SECONDS) -> None:
        self._members = [Member(tier, only=len(tiers) == 1) for tier in tiers]
        self._lookup_seconds = lookup_seconds
        self.has_remote = any(tier.in_background for tier in tiers)
        self.nearest_origin: ProgramOrigin = tiers[0].origin if tiers else "disk"  # of what `find_near` finds
        self._background = BackgroundTasks()
        self._prefetched = Prefetched()
        for member in self._members:
            member.reopen()

    def lookup_time(self) -> LookupTime:
        """The time that one program's lookups may spend on remote tiers, to be handed to `load`."""
        return LookupTime(self._lookup_seconds)

    # --- looking up

    def find(self, digest: str, name: str) -> tuple[Entry, str] | None:
        """A verified entry and the origin of its tier. `name` only helps to find it, and names it in the log."""
        found = self.locate(digest, name)
        return None if found is None else (found.value, found.origin)

    def locate(self, digest: str, name: str, ahead: _Places = tuple) -> Hit[Entry] | None:
        """What `load` would find, and where. Nothing is counted as a hit."""
        within = self.lookup_time()
        for member in self._members:
            for place in (None, *ahead()):
                found = self._fetch(member, digest, name, place, within)
                if found is not None:
                    return Hit(found[1], found[1].facts, member.tier.origin, place)
        return None

    def find_near(self, digest: str, name: str, decoder: Callable[[bytes, str], T]) -> T | None:
        """What the decoder makes of an entry in the nearest tier, which it verifies. Nothing is counted.

        None: `load` looks in all tiers, and does what is to be done about damage.
        """
        member = self._members[0]
        if not member.opened:
            return None
        try:
            data = member.tier.get_usual(digest, name)
            return None if data is None else decoder(data, digest)
        except Exception:
            return None

    def reject_near(self, digest: str, name: str, reason: str) -> None:
        """Take an entry that `find_near` found out of the nearest tier: the driver refuses it."""
        self._reject(self._members[0], digest, name, reason)

    def read(self, digest: str, name: str) -> tuple[bytes, float] | None:
        """The verified payload from the nearest tier, and the seconds that its compile took; None as above."""
        found = self.find_near(digest, name, decode_payload)
        if found is not None:
            self.count_hit()
        return found

    def count_hit(self) -> None:
        """The caller found in the nearest tier, and verified, what an entry holds."""
        self._members[0].hits.add()

    def load(
        self,
        digest: str,
        name: str,
        use: Callable[[Entry], T],
        ahead: _Places = tuple,
        within: LookupTime | None = None,
        tiers: int | None = None,
    ) -> Hit[T] | None:
        """What `use` makes of the first entry that it does not refuse with `BinaryRejected`.

        `ahead` returns where else the program may be, compiled ahead for an architecture. Each tier is asked there too before
        the next tier: what is near is faster than what is far. `within`, if given, is what earlier lookups left of the time.
        `tiers`: how many of them to look into.
        """
        if within is None and self.has_remote:
            within = self.lookup_time()
        missed: list[Member] = []
        for member in self._members[:tiers]:
            hit = self._load_from(member, digest, name, use, None, within, missed)
            if hit is not None:
                return hit
            for place in ahead():
                hit = self._load_from(member, digest, name, use, place, within, missed)
                if hit is not None:
                    return hit
            missed.append(member)
        return None

    def _load_from(
        self,
        member: Member,
        digest: str,
        name: str,
        use: Callable[[Entry], T],
        place: Place | None,
        within: LookupTime | None,
        missed: list[Member],
    ) -> Hit[T] | None:
        found = self._fetch(member, digest, name, place, within)
        if found is None:
            return None
        data, entry = found
        try:
            value = use(entry)
        except BinaryRejected as error:
            self._reject(member, digest, name, str(error), place)
            return None
        member.hits.add()
        for earlier in missed:
            if self._store(earlier, digest, name, data, place):
                earlier.count("filled")
        return Hit(value, entry.facts, member.tier.origin, place)

    def _fetch(
        self, member: Member, digest: str, name: str, place: Place | None = None, within: LookupTime | None = None
    ) -> tuple[bytes, Entry] | None:
        if not (member.opened or self._is_ready(member)):
            member.count("skipped")
            return None
        tier = member.tier
        try:
            if tier.in_background:
                data = self._fetch_far(member, digest, name, place, within or self.lookup_time())
            else:
                data = tier.get_named(digest, name) if place is None else tier.get_ahead(place, name)
            if data is not None:
                return data, decode(data, digest if place is None else place.digest)
            if place is None:
                member.count("misses")
        except Damaged as damage:
            if isinstance(damage, Untrusted | NotTrusted):
                then = "left there" if isinstance(damage, NotTrusted) else "set aside"
                text = f"{name} is not read from {tier.location} and {then}: {damage}; it is compiled again"
                member.warn("entry", text)
            self._reject(member, digest, name, str(damage), place, refused=isinstance(damage, NotTrusted))
        except _NoTimeLeft:
            member.count("skipped")
        except Exception as error:
            member.fail(error)
        return None

    def _fetch_far(
        self, member: Member, digest: str, name: str, place: Place | None, within: LookupTime
    ) -> bytes | None:
        with contextlib.suppress(NotAsked):
            return self._prefetched.take(member, digest, place)
        if within.is_used_up:
            raise _NoTimeLeft
        member.tier.prepare()
        begun = time.monotonic()
        try:
            with span("cache.fetch", program=name, tier=member.tier.name) as current:
                data = member.tier.get_within(digest, name, place, within.seconds_left)
                current.set(found=data is not None, bytes=len(data or b""))
                return data
        finally:
            within.seconds_left -= time.monotonic() - begun

    def prefetch(self, wanted: Sequence[tuple[str, str, Sequence[Place]]]) -> None:
        """Ask remote tiers in one batch for programs that no tier before has; `load` finds them then without asking again.

        Of each program: its digest, its name, and where else it may be. `forget_prefetched` drops what was not loaded.
        """
        with span("cache.prefetch", programs=len(wanted)):
            self._prefetched.bring(self._members, self._is_ready, wanted)

    def forget_prefetched(self) -> None:
        """Drop what `prefetch` brought and `load` did not take."""
        self._prefetched.clear()

    # --- writing

    def put(self, entry: Entry) -> bool:
        """Write an entry to every tier; whether any of them stored it."""
        name = entry.facts.name
        if len(entry.payload) > LARGEST_PAYLOAD:
            return False
        if not self.is_writable:
            for member in self._members:
                if not member.tier.read_only:
                    member.count("skipped")
            return False
        try:
            data = encode(entry)
        except UnicodeError as error:
            log(repr(name), "cannot be written down: %s", error)
            return False
        digest = entry.facts.key.digest
        return sum(self._store(member, digest, name, data) for member in self._members) > 0

    def _store(self, member: Member, digest: str, name: str, data: bytes, place: Place | None = None) -> bool:
        if member.tier.read_only:
            return False
        if member.tier.in_background:
            key = (member, digest, place.folder if place is not None else "")
            run = partial(self._write_far, member, digest, name, data, place)
            dropped = partial(member.count, "dropped")
            return self._background.add(Task(key, run, dropped, group=digest, nbytes=len(data)))
        if not self._is_writable(member):
            member.count("skipped")
            return False
        return self._write(member, digest, name, data, place)

    def _write(self, member: Member, digest: str, name: str, data: bytes, place: Place | None) -> bool:
        try:
            if place is None:
                member.tier.put(digest, data)
            else:
                member.tier.put_ahead(place, data)
        except NotStored as error:
            log(name, "not saved in the %s tier: %s", member.tier.name, error)
            return False
        except Exception as error:
            member.fail(error, only_writing=True)
            return False
        member.writing.end()
        member.count("stored")
        member.note_stored(digest)
        return True

    def _write_far(self, member: Member, digest: str, name: str, data: bytes, place: Place | None) -> float | None:
        """In the background: write an entry, or say when to try again."""
        pause = member.use.seconds_left if not member.opened else member.writing.seconds_left
        if pause > 0:
            return pause
        if not member.reopen():
            return member.use.seconds_left
        self._write(member, digest, name, data, place)
        return member.writing.seconds_left or None

    def after_writes(self, digest: str, callback: Callable[[], None]) -> None:
        """Call it once the writes of an entry that wait now were tried, with or without success; at once where none waits."""
        self._background.after(digest, callback)

    def flush(self, timeout_seconds: float = settings.REMOTE_FLUSH_SECONDS) -> bool:
        """Wait for writes in the background; whether all are done.

        Those to a tier that fails now are not waited for, and no single one longer than two seconds.
        """
        return self._background.flush(self._worth_waiting(timeout_seconds), settings.REMOTE_STALLED_SECONDS)

    def _worth_waiting(self, seconds: float) -> float:
        """The time to wait for writes; none where every remote tier fails now, and perhaps hangs while it is asked again."""
        return seconds if any(member.opened for member in self._members if member.tier.in_background) else 0.0

    def close(self, timeout_seconds: float = settings.REMOTE_FLUSH_SECONDS) -> None:
        """`flush`, drop the writes that are left, and give up connections. No lookup follows."""
        self._background.close(self._worth_waiting(timeout_seconds), settings.REMOTE_STALLED_SECONDS)
        for member in self._members:
            with contextlib.suppress(Exception):
                member.tier.close()

    def reject(self, digest: str, name: str, reason: str, place: Place | None = None) -> None:
        """Take an entry out of every tier: the driver refused it after it had been loaded."""
        for member in self._members:
            if member.tier.in_background:  # it only hides the entry, and need not be asked for that
                member.tier.reject(digest) if place is None else member.tier.reject_ahead(place)
            elif self._fetch(member, digest, name, place) is not None:
                self._reject(member, digest, name, reason, place)

    def _reject(
        self,
        member: Member,
        digest: str,
        name: str,
        reason: str,
        place: Place | None = None,
        *,
        refused: bool = False,
    ) -> None:
        member.count("refused" if refused else "rejected")
        log(name, "the entry in the %s tier is rejected: %s", member.tier.name, reason)
        try:
            if place is None:
                member.tier.reject(digest)
            else:
                member.tier.reject_ahead(place)
        except Exception as error:  # the next lookup rejects it again
            member.count("failed")
            log(name, "the %s tier could not remove it: %s", member.tier.name, error)

    @contextlib.contextmanager
    def alone(
        self,
        digest: str,
        timeout_seconds: float,
        name: str = "",
        *,
        found: Callable[[int], bool] = lambda tiers: False,
        shared: bool = True,
        within: LookupTime | None = None,
    ) -> Iterator[bool]:
        """Keep others from compiling the same key during the block. False: no lock could be had, go on anyway.

        Each tier has a lock for those who share it, and the nearest comes first: one process of each machine goes on to the
        locks between machines. After each lock, `found` is called with the number of tiers up to it: who had the lock before
        left the entry there. True ends the waiting. Without `shared`, other machines are not kept from compiling, because
        nothing will be stored for them. `within` is what earlier lookups left of the time.
        """
        turn = CompileTurn(digest, name, timeout_seconds, within or self.lookup_time(), self._after_writes)
        compiled = failed = False
        try:
            for tiers, member in enumerate(self._members, 1):
                if self._is_ready(member) and turn.take(member, shared=shared) and found(tiers):
                    yield turn.is_held
                    return
            yield turn.is_held
            compiled = True
        except Exception:
            failed = True
            raise
        finally:
            turn.end(compiled=compiled, failed=failed)

    def _after_writes(self, digest: str, work: Callable[[], None], dropped: Callable[[], None]) -> None:
        """Do it in the background, once the writes of an entry that wait now were tried; `dropped` where that is given up."""
        task = Task(work, partial(_without_result, work), dropped)
        self.after_writes(digest, partial(_without_result, partial(self._background.add, task)))

    def maintain(self, tier: Tier, work: Callable[[], T], otherwise: T) -> T:
        """The result of other `work` on a tier, such as pruning; `otherwise` where the tier is not ready or fails."""
        member = next(member for member in self._members if member.tier is tier)
        if not self._is_ready(member):
            return otherwise
        try:
            return work()
        except OSError as error:
            member.fail(error, only_writing=True)
            return otherwise

    # --- tiers that fail

    def _is_ready(self, member: Member) -> bool:
        """Whether the tier may be used now. One that failed is opened again when its pause is over."""
        if member.opened or not member.tier.in_background:
            return member.reopen()
        if member.use.is_over:
            self._background.add(Task((member, "open"), partial(_open_again, member), _nothing))
        return False

    def _is_writable(self, member: Member) -> bool:
        if member.tier.read_only:
            return False
        if member.tier.in_background:
            return True  # what cannot be written now waits
        return self._is_ready(member) and member.writing.is_over

    # --- counting

    def counts(self) -> dict[str, TierCounts]:
        """What was done with each tier so far, by its name."""
        return {member.tier.name: member.read_counts() for member in self._members}

    def hits(self, origin: str) -> int:
        """Hits in the tiers of an origin."""
        return sum(member.hits.read() for member in self._members if member.tier.origin == origin)

    def total(self, count: str, origin: str) -> int:
        """One of `TierCounts`, summed over the tiers of an origin."""
        return sum(getattr(member.counts, count) for member in self._members if member.tier.origin == origin)

    def tier_counts(self) -> dict[str, float]:
        """What the statistics of a cache count of its tiers, by the names they have there."""
        counts: dict[str, float] = {"hits_disk": self.hits("disk"), "hits_remote": self.hits("remote")}
        counts["corrupt_entries"] = self.rejected
        for what in ("stored", "refused", "failed", "skipped", "dropped"):
            counts[f"remote_{what}"] = self.total(what, "remote")
        return counts

    @property
    def rejected(self) -> int:
        """Entries rejected in any tier."""
        return sum(member.counts.rejected for member in self._members)

    @property
    def is_writable(self) -> bool:
        """Whether a `put` now would be tried in at least one tier."""
        return any(self._is_writable(member) for member in self._members)
