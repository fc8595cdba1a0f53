"""The turn to compile: the locks of a chain's tiers, taken one after the other, so that one process of one machine compiles.

A lock on this machine is released when the compile is over. A lock between machines is released later: after the entry is in
the store, in the background. Where nothing came into the store it is abandoned, and those who wait compile for themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from ..storage.locks import LockUnavailable
from .chain_member import LookupTime, Member
from .log import log
from .tiers.tier import CompileLock, SharedLock


class CompileTurn:
    """The locks that one compile holds. `later` is called with the digest and with what to do after its writes."""

    def __init__(
        self,
        digest: str,
        name: str,
        timeout_seconds: float,
        within: LookupTime,
        later: Callable[[str, Callable[[], None]], None],
    ) -> None:
        self._digest = digest
        self._name = name or digest[:12]
        self._deadline = time.monotonic() + timeout_seconds
        self._within = within
        self._later = later
        self._held: list[tuple[Member, CompileLock]] = []

    @property
    def is_held(self) -> bool:
        """Whether there is any lock."""
        return bool(self._held)

    def take(self, member: Member, *, shared: bool) -> bool:
        """Wait for a tier's lock, if it has one. Whether the entry may have come meanwhile.

        Without `shared` locks between machines are left alone.
        """
        try:
            lock = member.tier.lock(self._digest)
            if lock is None or (isinstance(lock, SharedLock) and (not shared or self._within.seconds_left <= 0)):
                return False
            left = max(0.0, self._deadline - time.monotonic())
            if isinstance(lock, SharedLock):
                self._wait(lock, left)
                member.expect(self._digest)
            else:
                lock.acquire(left)
            self._held.append((member, lock))
        except LockUnavailable as error:
            log(self._name, "going on without a lock: %s", error)
        except Exception as error:
            member.fail(error)
            return False
        return True

    def _wait(self, lock: SharedLock, seconds: float) -> None:
        begun = time.monotonic()
        try:
            lock.acquire(seconds, self._within.seconds_left)
        finally:
            if lock.waited:  # instead of compiling: what comes now is a lookup of its own
                self._within.renew()
            else:
                self._within.seconds_left -= time.monotonic() - begun

    def end(self, *, compiled: bool, failed: bool) -> None:
        """Release what is held. `failed`: compiling raised an error, and others need not wait for somebody to repeat it."""
        while self._held:
            member, lock = self._held.pop()
            if isinstance(lock, SharedLock):
                self._later(self._digest, partial(self._settle, member, lock, compiled, failed))
            else:
                lock.release()

    def _settle(self, member: Member, lock: SharedLock, compiled: bool, failed: bool) -> None:
        stored = member.was_stored(self._digest)
        try:
            if not member.opened:  # nobody waits for a server that does not answer
                lock.drop()
            elif failed or (compiled and not stored):
                lock.abandon()
            else:
                lock.release()
        except Exception as error:  # it runs out by itself
            log(self._name, "the lock of the %s tier is not released: %s", member.tier.name, error)
