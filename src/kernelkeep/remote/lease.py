"""A lease on a name in a shared store: one machine at a time holds it, until it gives it back or stops renewing it.

A thread renews the leases that this process holds, so a holder may work for minutes. When the process dies nobody renews, and
the lease runs out `duration_seconds` later. Every holder has a token, greater than those before it. A holder that was paused
for longer than the lease, and comes back, finds another token in the store: it can neither renew nor release what is no longer
its own, and `is_held` is False.

`ConditionalLease` needs a store with conditional puts and no clock that machines share: who waits takes the lease over
after it has seen the same version for longer than the lease lasts, by its own clock. `redis_lease.py` does better where the
server counts the time.

A lease saves work and protects nothing: whoever can write to the store can hold it. Waiting (`waiting.py`) is therefore bounded.
"""

from __future__ import annotations

import contextlib
import enum
import os
import secrets
import threading
import time
import weakref
from abc import ABC, abstractmethod
from typing import NamedTuple

from ..platforms import system
from .store import Store, Versioned

DURATION_SECONDS = 5.0  # how long after the death of a holder another one takes over
_RENEWALS = 4  # as many in each duration, so that a few may fail
_LONGEST_SECONDS = 60.0  # a longer duration in a store is nobody's that follows these rules
_LONGEST_RECORD = 200


class State(enum.Enum):
    """What a record says of a lease."""

    HELD = "held"
    RELEASED = "released"
    FAILED = "failed"  # released by a holder whose work failed: who waited for it need not wait for the next holder


class Record(NamedTuple):
    """What is stored under the name of a lease."""

    state: State
    token: int
    owner: str
    duration_ms: int
    renewals: int = 0

    def encode(self) -> bytes:
        """As text. No two writes are alike, because some stores call the hash of the bytes their version."""
        return f"{self.state.value} {self.token} {self.owner} {self.duration_ms} {self.renewals}".encode()

    @classmethod
    def decode(cls, data: bytes) -> Record | None:
        """What a store returned; None where it is something else."""
        if len(data) > _LONGEST_RECORD:
            return None
        try:
            state, token, owner, duration_ms, renewals = data.decode("ascii").split(" ")
            return cls(State(state), int(token), owner, int(duration_ms), int(renewals))
        except ValueError:
            return None

    @property
    def duration_seconds(self) -> float:
        """How long it holds without being renewed, within reason."""
        return min(max(self.duration_ms / 1000, 0.1), _LONGEST_SECONDS)


class StoreLease(ABC):
    """A lease on one name. Stores' errors pass through. Only `renew` and `withdraw` are for other threads."""

    def __init__(self, name: str, duration_seconds: float = DURATION_SECONDS) -> None:
        self.name = name
        self.duration_seconds = duration_seconds
        self.owner = secrets.token_hex(8)
        self.token = 0
        self.waited_for = 0  # the token of the holder that was last seen
        self._held_in: int | None = None  # the process
        self._unwanted = False
        self._lock = threading.Lock()

    @property
    def is_held(self) -> bool:
        """Whether it is held here, as far as is known: a process that was paused finds out at the next renewal."""
        return self._held_in == os.getpid()

    def attempt(self) -> State | None:
        """Take the lease if nobody has it; None where that succeeded, else what is in the way.

        `State.FAILED` is only said of the holder that this object saw before.
        """
        with self._lock:
            found = self.try_to_take()
            if found is None:
                self._held_in = os.getpid()
                if not self._unwanted:
                    _renewals.add(self)
        if found is None and self._unwanted:
            self.release()
        return found

    def withdraw(self) -> None:
        """Nobody waits for an attempt that may still go on in another thread: if it succeeds, the lease is given back."""
        self._unwanted = True
        if not self._lock.locked():
            self.release()

    def renew(self) -> bool:
        """Hold it for another `duration_seconds`; False where it was lost."""
        if self._unwanted:
            self.release()
        with self._lock:
            if self.is_held and not self.extend():
                self._held_in = None
            return self.is_held

    def release(self, *, failed: bool = False) -> None:
        """Give it back, if it is still held. With `failed`, those who wait now are told that waiting is no use."""
        _renewals.discard(self)
        with self._lock:
            if self.is_held:
                self._held_in = None
                self.give_up(State.FAILED if failed else State.RELEASED)

    def drop(self) -> None:
        """Stop renewing it, without asking the store: it runs out by itself."""
        _renewals.discard(self)
        self._held_in = None

    # What a kind of store does.

    @abstractmethod
    def try_to_take(self) -> State | None:
        """Write a record with a new token where nobody holds the lease; None where that succeeded."""

    @abstractmethod
    def extend(self) -> bool:
        """Renew this object's record; False where another one is there."""

    @abstractmethod
    def give_up(self, state: State) -> None:
        """Replace this object's record; do nothing where another one is there."""


class ConditionalLease(StoreLease):
    """A lease in a store that can compare before it writes. The record stays there, released, and keeps the token."""

    def __init__(self, store: Store, name: str, duration_seconds: float = DURATION_SECONDS) -> None:
        super().__init__(name, duration_seconds)
        self._store = store
        self._version = ""
        self._renewed = 0
        self._seen_version = ""
        self._seen_at = 0.0

    def _record(self, state: State = State.HELD) -> bytes:
        return Record(state, self.token, self.owner, int(self.duration_seconds * 1000), self._renewed).encode()

    def try_to_take(self) -> State | None:
        """One round trip where there is no record yet, two or three where there is one."""
        if not self._seen_version:  # mostly nobody ever had it, and one round trip is enough
            self.token, self._renewed = 1, 0
            if self._holds(self._store.create(self.name, self._record())):
                return None
        found = self._store.get_versioned(self.name)
        if found is None:
            self._seen_version = ""
            return State.RELEASED
        record = Record.decode(found.data)
        if record is not None and record.owner == self.owner and record.state is State.HELD:
            self.token, self._renewed = record.token, record.renewals
            self._version = found.version  # an earlier write of ours arrived, and only its answer was lost
            return None
        in_the_way = self._judge(found, record)
        if in_the_way is not None:
            return in_the_way
        self.token, self._renewed = (record.token if record else 0) + 1, 0
        return None if self._holds(self._store.replace(self.name, self._record(), found.version)) else State.HELD

    def _judge(self, found: Versioned, record: Record | None) -> State | None:
        """What is in the way of taking the lease over; None where nothing is."""
        now = time.monotonic()
        if found.version != self._seen_version:
            self._seen_version, self._seen_at = found.version, now
        if record is not None and record.state is not State.HELD:
            return State.FAILED if record.state is State.FAILED and record.token == self.waited_for else None
        duration = record.duration_seconds if record else self.duration_seconds
        self.waited_for = record.token if record else 0
        return State.HELD if now - self._seen_at <= duration else None

    def _holds(self, version: str | None) -> bool:
        self._version = version or ""
        return version is not None

    def extend(self) -> bool:
        """Write the record again, with a number that changes its version."""
        self._renewed += 1
        record, version = self._record(), self._version
        if self._holds(self._store.replace(self.name, record, version)):
            return True
        found = self._store.get_versioned(self.name)
        ours = found is not None and found.data == record  # it arrived, and only the answer was lost
        return ours and found is not None and self._holds(found.version)

    def give_up(self, state: State) -> None:
        """The record stays, and says so."""
        self._store.replace(self.name, self._record(state), self._version)


class _Renewals:
    """The thread that renews what this process holds. It runs while there is something to renew."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: weakref.WeakKeyDictionary[StoreLease, float] = weakref.WeakKeyDictionary()
        self._thread: threading.Thread | None = None

    def add(self, lease: StoreLease) -> None:
        with self._changed:
            self._due[lease] = time.monotonic() + lease.duration_seconds / _RENEWALS
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="kernelkeep-leases", daemon=True)
                thread.start()  # raises where there are too many threads; the next lease tries again
                self._thread = thread
            self._changed.notify()

    def discard(self, lease: StoreLease) -> None:
        with self._changed:
            self._due.pop(lease, None)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                due = sorted(self._due.items(), key=lambda item: item[1])
                if not due:
                    self._thread = None
                    return
                lease, at = due[0]
                left = at - time.monotonic()
                if left > 0:
                    del lease, due
                    self._changed.wait(left)
                    continue
                self._due[lease] = time.monotonic() + lease.duration_seconds / _RENEWALS
            held = True
            with contextlib.suppress(Exception):  # tried again when it is due again
                held = lease.renew()
            if not held:
                self.discard(lease)
            del lease, due


_renewals = _Renewals()


def _forget_in_child() -> None:
    """A forked child holds none of its parent's leases, and has no thread that renews."""
    global _renewals
    _renewals = _Renewals()


system.on_fork(after_in_child=_forget_in_child)
