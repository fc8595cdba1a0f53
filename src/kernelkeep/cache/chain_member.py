"""A tier in a chain, and how it does: what was counted, and since when it is left alone."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings

import msgspec

from ..errors import CacheWarning
from ..escaping import escaped
from .log import log
from .native import Tally
from .tiers.tier import NotWritable, Tier

_LEAST_SHARE = 0.25  # of the time of a lookup: with less of it left, no tier is asked


class TierCounts(msgspec.Struct):
    """What the chain did with one tier.

    `rejected`: entries that failed their check, or that the driver refused. `refused`: entries of a shared store that no trusted
    key signed. `failed`: calls that raised. `skipped`: lookups and writes that did without the tier, because it had failed a
    short time before or no time was left for it. `dropped`: entries that were not written in the background, because too many
    waited or the tier kept failing. `filled`: how many of the entries `stored` came from a later tier.
    """

    hits: int = 0
    misses: int = 0
    stored: int = 0
    filled: int = 0
    rejected: int = 0
    refused: int = 0
    failed: int = 0
    skipped: int = 0
    dropped: int = 0


class Pause:
    """The time during which a tier is left alone after a failure. It doubles with each failure in a row."""

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first, self._longest = first_seconds, longest_seconds
        self._next = first_seconds
        self._until = 0.0

    def begin(self) -> None:
        """Leave it alone from now on."""
        self._until = time.monotonic() + self._next
        self._next = min(2 * self._next, self._longest)

    def end(self) -> None:
        """It works: the next pause is a short one."""
        self._next = self._first

    @property
    def is_over(self) -> bool:
        """Whether it may be tried."""
        return time.monotonic() >= self._until

    @property
    def seconds_left(self) -> float:
        """How long it is still left alone."""
        return max(0.0, self._until - time.monotonic())


class Member:
    """A tier of a chain, and how it does. `only`: it is the only tier, and without it programs are in memory alone."""

    def __init__(self, tier: Tier, *, only: bool = False) -> None:
        self.tier = tier
        self.counts = TierCounts()
        self.hits = Tally()  # on the way of every lookup; `read_counts` puts them among the counts
        # One that is far away counts as open until it fails: nothing is asked of a server that may not be needed.
        self.opened = tier.in_background
        self.use = Pause(*tier.retry_seconds)
        self.writing = Pause(*tier.retry_seconds)
        self._only = only
        self._opening = threading.Lock()
        self._lock = threading.RLock()  # a signal's handler may look while its own thread counts
        self._warned: set[str] = set()
        self._expected: dict[str, bool] = {}

    def count(self, what: str) -> None:
        """Add one to a count."""
        with self._lock:
            setattr(self.counts, what, getattr(self.counts, what) + 1)

    def expect(self, digest: str) -> None:
        """Remember from now on whether this entry is stored."""
        with self._lock:
            self._expected[digest] = False

    def note_stored(self, digest: str) -> None:
        """The tier has stored an entry."""
        with self._lock:
            if digest in self._expected:
                self._expected[digest] = True

    def was_stored(self, digest: str) -> bool:
        """Whether it was stored since `expect`; asked once."""
        with self._lock:
            return self._expected.pop(digest, False)

    def read_counts(self) -> TierCounts:
        """All counts, at one moment."""
        with self._lock:
            return msgspec.structs.replace(self.counts, hits=self.hits.read())

    def reopen(self) -> bool:
        """Open the tier, unless it is open or its pause is not over; whether it may be used now."""
        if self.opened:
            return True
        with self._opening:
            if self.opened:
                return True
            if not self.use.is_over:
                return False
            try:
                self.tier.open()
            except NotWritable as error:
                self.fail(error, only_writing=True)
            except Exception as error:
                self.fail(error)
                return False
            self.use.end()
            self.opened = True
            return True

    def fail(self, error: Exception, *, only_writing: bool = False) -> None:
        """Leave the tier alone for a while, and warn once."""
        self.count("failed")
        self.writing.begin()
        if not only_writing:
            self.use.begin()
            self.opened = False
        tier = self.tier
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = reason.removeprefix(f"{tier.location}: ")
        if self._only:
            text = f"programs cannot be kept in {tier.location} ({reason}); they are kept in memory only"
        elif only_writing:
            text = f"the {tier.name} tier in {tier.location} cannot be written to ({reason}); it is still read"
        else:
            text = f"the {tier.name} tier in {tier.location} fails ({reason}); the cache does without it for a while"
        self.warn("tier", text)

    def warn(self, kind: str, text: str) -> None:
        """Log it; the first of its kind is a warning."""
        with self._lock:
            first = kind not in self._warned
            self._warned.add(kind)
        log(self.tier.name, "%s", text)
        if first:
            with contextlib.suppress(Warning):  # where warnings are errors, this one still breaks nothing
                warnings.warn(escaped(text), CacheWarning, stacklevel=2)


class LookupTime:
    """How long one lookup may still wait for remote tiers, all of them together."""

    __slots__ = ("_seconds", "seconds_left")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.seconds_left = seconds

    @property
    def is_used_up(self) -> bool:
        """Whether too little is left to ask another tier: one that answers in time must not count as failing."""
        return self.seconds_left <= _LEAST_SHARE * self._seconds

    def renew(self) -> None:
        """Begin again, after a wait that was not for the tiers."""
        self.seconds_left = self._seconds
