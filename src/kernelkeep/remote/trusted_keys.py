"""Which key signs and which are trusted at the moment: those that a program was given, with those of the keyring.

The keyring is looked at again every second, so that a key that is revoked is refused in running processes too. While it
cannot be read, no key is trusted and nothing is signed: a revocation might be in it.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterable
from typing import NamedTuple

from ..errors import CacheWarning, RemoteError
from ..escaping import escaped
from .keyring import Keyring
from .keyring_files import Contents, Trusted
from .keys import Signer

_LOOK_SECONDS = 1.0
_SETTLED_NS = 2_000_000_000


class KeysNow(NamedTuple):
    """The keys at a moment. `problem` says why the keyring cannot be read."""

    signer: Signer | None = None
    trusted: dict[str, Trusted] = {}  # noqa: RUF012
    revoked: frozenset[str] = frozenset()
    problem: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether there are no keys. A keyring that cannot be read is not empty."""
        return not (self.trusted or self.problem)


class TrustedKeys:
    """Keys that were given, with those of a keyring. The signer that was given is preferred; a revocation always wins."""

    def __init__(
        self,
        signer: Signer | None = None,
        trusted: Iterable[Trusted] = (),
        revoked: Iterable[str] = (),
        *,
        keyring: Keyring | None = None,
    ) -> None:
        self._given = Contents(signer, tuple(trusted), frozenset(revoked))
        self._keyring = keyring
        self._warned: set[str] = set()
        self._stamp: object = None
        self._next_look = 0.0
        self._held = self._combine(Contents()) if keyring is None else self._look(keyring)

    def now(self) -> KeysNow:
        """The keys at this moment; what was in the keyring up to a second ago."""
        if self._keyring is not None and time.monotonic() >= self._next_look:
            self._held = self._look(self._keyring)
        return self._held

    def _look(self, keyring: Keyring) -> KeysNow:
        self._next_look = time.monotonic() + _LOOK_SECONDS
        stamp = keyring.stamp()
        if stamp == self._stamp:
            return self._held
        latest = max((one[0] for one in stamp if isinstance(one, tuple)), default=0)
        # A change right after another may leave the same time of modification, so a recent one is read again.
        self._stamp = stamp if time.time_ns() - latest > _SETTLED_NS else None
        try:
            contents = keyring.load()
        except RemoteError as error:
            self._warn(f"{error}; nothing that others signed is used")
            return KeysNow(problem=str(error))
        for problem in contents.problems:
            self._warn(problem)
        return self._combine(contents)

    def _combine(self, found: Contents) -> KeysNow:
        revoked = found.revoked | self._given.revoked
        trusted = {one.key.id: one for one in (*found.trusted, *self._given.trusted) if one.key.id not in revoked}
        signer = self._given.signer or found.signer
        if signer is not None and signer.id in revoked:
            self._warn(f"the key {signer.id} was revoked and signs nothing; `kernelkeep keys new` makes another")
            signer = None
        if signer is not None:
            trusted[signer.id] = Trusted(signer)
        return KeysNow(signer, trusted, revoked)

    def _warn(self, text: str) -> None:
        """Once for each text."""
        if text not in self._warned:
            self._warned.add(text)
            with contextlib.suppress(Warning):  # where warnings are errors, this one still breaks nothing
                warnings.warn(escaped(text), CacheWarning, stacklevel=2)
