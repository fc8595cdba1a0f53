"""The lock of a remote tier: one machine compiles, the others wait for its bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...remote.lease import State, StoreLease
from ...remote.waiting import Outcome, wait_for
from ...storage.locks import LockUnavailable

T = TypeVar("T")

CALL_SECONDS = 1.0  # for one question to the store while waiting; others compile meanwhile, so there is no hurry


class RemoteLock:
    """A `SharedLock` over a lease. `call` runs something with a time limit; `arrived` says whether the entry is there."""

    def __init__(
        self,
        lease: StoreLease,
        arrived: Callable[[], bool],
        call: Callable[[Callable[[], State | None], float], State | None],
    ) -> None:
        self._lease = lease
        self._arrived = arrived
        self._call = call
        self.waited = False

    def acquire(self, timeout_seconds: float, first_seconds: float = CALL_SECONDS) -> None:
        """Wait for the lease or for the entry. A store that fails raises its error."""
        limit = first_seconds

        def attempt() -> State | None:
            nonlocal limit
            state = self._call(self._lease.attempt, limit)
            limit = CALL_SECONDS
            self.waited = self.waited or state is not None
            return state

        try:
            outcome = wait_for(attempt, self._arrived, timeout_seconds)
        except BaseException:
            self._lease.withdraw()
            raise
        if outcome in (Outcome.FAILED, Outcome.LATE):
            raise LockUnavailable(outcome.value)

    def release(self) -> None:
        """Give the lease back, if it is held."""
        self._lease.release()

    def abandon(self) -> None:
        """The same, and those who wait now compile for themselves."""
        self._lease.release(failed=True)

    def drop(self) -> None:
        """Leave the lease to run out; the store is not asked."""
        self._lease.drop()
