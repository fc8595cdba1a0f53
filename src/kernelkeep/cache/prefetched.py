"""Entries of remote tiers that were asked for in one batch, and wait to be loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from ..storage.files import Damaged
from .chain_member import Member
from .tiers.tier import Place, Tier

_Key = tuple[Member, str, str]  # the fingerprint, "" for that of this very device, and the digest


class NotAsked(Exception):
    """It was not in the batch."""


class Prefetched:
    """What remote tiers answered in a batch, also where they have nothing. Each answer is taken once. Safe under threads."""

    def __init__(self) -> None:
        self._answers: dict[_Key, bytes | Damaged | None] = {}
        self._lock = threading.Lock()

    def bring(
        self,
        members: Iterable[Member],
        is_ready: Callable[[Member], bool],
        wanted: Sequence[tuple[str, str, Sequence[Place]]],
    ) -> None:
        """Ask remote tiers for what no tier before has: for each program its digest, its name, and where else it may be."""
        missing = {digest: (name, places) for digest, name, places in wanted}
        for member in members:
            if not missing or not is_ready(member):
                continue
            try:
                if not member.tier.in_background:
                    missing = {d: found for d, found in missing.items() if not _has(member.tier, d, *found)}
                    continue
                keys = [(d, place) for d, (_, places) in missing.items() for place in (None, *places)]
                batch = member.tier.get_many(keys)
            except Exception as error:
                member.fail(error)
                continue
            with self._lock:
                self._answers.update((_key(member, *key), one) for key, one in zip(keys, batch, strict=True))
            for (digest, _), one in zip(keys, batch, strict=True):
                if one is not None:
                    missing.pop(digest, None)

    def take(self, member: Member, digest: str, place: Place | None) -> bytes | None:
        """What the tier answered; raises it where it is `Damaged`, and `NotAsked` where it was not asked."""
        if not self._answers:  # as it mostly is
            raise NotAsked
        with self._lock:
            try:
                answer = self._answers.pop(_key(member, digest, place))
            except KeyError:
                raise NotAsked from None
        if isinstance(answer, Damaged):
            raise answer
        return answer

    def clear(self) -> None:
        """Drop what nobody took."""
        with self._lock:
            self._answers.clear()


def _key(member: Member, digest: str, place: Place | None) -> _Key:
    return (member, "", digest) if place is None else (member, place.fingerprint, place.digest)


def _has(tier: Tier, digest: str, name: str, places: Sequence[Place]) -> bool:
    return tier.has(digest, name) or any(tier.has_ahead(place, name) for place in places)
