"""Which run writes to an address: a small object beside the checkpoint, `run.kkpt.writer`, that its run renews.

No clocks are compared. A run that finds the object watches it: one that changes belongs to a run that lives, and the second run
is refused; one that stays the same for `DEAD_SECONDS` belonged to a run that died, and is taken over. Of many that take over,
one succeeds. A run that was taken over, because it was stopped or cut off for so long, notices and stores nothing any more.
The object stays when a run ends, and says so: where it is gone, the store has lost it, and its run writes it again.

The leases of `remote/lease.py` are for work of seconds that anybody may do. This one names its holder, for the error message;
and a run that replaces a dead one on the same machine need not wait.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
import warnings

import msgspec

from ...errors import CheckpointError
from ...remote.store import Store, Versioned
from .stored_objects import in_one_line

DEAD_SECONDS = 10.0
_RENEW_SECONDS = 2.5
_LOOK_SECONDS = 0.5
_log = logging.getLogger("kernelkeep")


class CheckpointInUse(CheckpointError):
    """Another run writes to this address, and is alive."""


class _Note(msgspec.Struct, frozen=True):
    """Who writes. `copy` names the folder of its working copy: two runs with the same are never alive at once."""

    run: str
    copy: str
    host: str
    pid: int
    renewed: int = 0
    ended: bool = False


class Ownership:
    """One run's right to write to an address, from `acquire` to `release`."""

    def __init__(self, store: Store, name: str, shown: str, copy: str) -> None:
        self._store = store
        self._name = f"{name}.writer"
        self._shown = shown
        self._note = _Note(secrets.token_hex(8), copy, socket.gethostname(), os.getpid())
        self._version: str | None = None
        self._lost = ""
        self._failing = False  # the store does not answer
        self._mutex = threading.Lock()
        self._over = threading.Event()

    def acquire(self) -> bool:
        """Take it; False where the store has no means for that. `CheckpointError` where another run has it."""
        if not self._store.conditional:
            return False
        try:
            self._try_to_acquire()
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(f"{self._shown} cannot be reached: {in_one_line(error, self._store)}") from error
        if self._version is None:
            return False
        threading.Thread(target=self._renew_until_over, name=f"writer of {self._shown}", daemon=True).start()
        return True

    def _try_to_acquire(self) -> None:
        """`_acquire`. Where the store answers, but refuses conditional puts again and again, it is one that has none."""
        for last in (False, True):
            try:
                self._acquire()
                return
            except CheckpointError:
                raise
            except Exception as error:
                self._store.get(self._name)
                if last:
                    _log.info("%s cannot be claimed: %s", self._shown, in_one_line(error, self._store))

    def _acquire(self) -> None:
        while True:
            self._version = self._store.create(self._name, self._next())
            if self._version is not None:
                return
            found = self._store.get_versioned(self._name)
            if found is None:
                continue
            holder = _decoded(found)
            # This process has the lock of that folder, so whoever had it before is dead.
            mine = holder is not None and holder.copy == self._note.copy
            over = holder is not None and holder.ended
            if not mine and not over and not self._watch(found, holder):
                continue
            self._version = self._store.replace(self._name, self._next(), found.version)
            if self._version is not None:
                return

    def _watch(self, found: Versioned, holder: _Note | None) -> bool:
        """Whether whoever has it is dead; False where it has ended. `CheckpointError` where it is alive."""
        who = "another run" if holder is None else f"a run in process {holder.pid} on {holder.host}"
        _log.info("%s is claimed by %s: watching whether that one is alive", self._shown, who)
        deadline = time.monotonic() + DEAD_SECONDS
        while time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
            now = self._store.get_versioned(self._name)
            if now is None or ((holder_now := _decoded(now)) is not None and holder_now.ended):
                return False
            if now.version != found.version:
                raise CheckpointInUse(
                    f"{self._shown} is in use: {who} writes its checkpoints there; wait for it to end, or pass another "
                    "checkpoint="
                )
        return True

    def confirm(self) -> None:
        """Renew it now. `CheckpointError` where another run has taken over; what the store raises where it fails."""
        with self._mutex:
            if self._lost:
                raise CheckpointError(self._lost)
            if self._version is None or self._over.is_set():
                return
            self._failing = True
            version = (
                self._store.replace(self._name, self._next(), self._version)
                or self._version_of_mine()
                or self._store.create(self._name, self._next())
            )
            self._failing = False
            if version is None:
                self._lost = f"another run has taken over {self._shown}, because this one was not heard of for {DEAD_SECONDS:g} s"
                raise CheckpointError(self._lost)
            self._version = version

    def _next(self) -> bytes:
        self._note = msgspec.structs.replace(self._note, renewed=self._note.renewed + 1)
        return msgspec.json.encode(self._note)

    def _version_of_mine(self) -> str | None:
        """The version of what is there, if this run wrote it: a write may arrive while its answer is lost."""
        found = self._store.get_versioned(self._name)
        holder = None if found is None else _decoded(found)
        return found.version if found is not None and holder is not None and holder.run == self._note.run else None

    def _renew_until_over(self) -> None:
        while not self._over.wait(_RENEW_SECONDS):
            try:
                self.confirm()
            except CheckpointError:
                return  # said by whoever wants to write
            except Exception as error:
                _log.debug("the claim on %s cannot be renewed now: %s", self._shown, in_one_line(error, self._store))

    def release(self) -> None:
        """Give it back, where it is still this run's. A store that does not answer is not waited for: the claim runs out."""
        self._over.set()
        if self._failing:
            return
        with self._mutex, contextlib.suppress(Exception):
            if self._version is not None and not self._lost:
                self._note = msgspec.structs.replace(self._note, ended=True)
                self._store.replace(self._name, self._next(), self._version)
            self._version = None


def warn_unowned(shown: str, category: type[Warning]) -> None:
    """Tell that a store cannot keep a second run out."""
    warnings.warn(
        f"{shown} is in a store that cannot lock it: make sure that no second run writes to it", category, stacklevel=6
    )


def _decoded(found: Versioned) -> _Note | None:
    try:
        return msgspec.json.decode(found.data, type=_Note)
    except (msgspec.MsgspecError, ValueError):
        return None
