"""Tuning results that machines share: what one has measured, another with the same device need not measure.

    tuning/<fingerprint's digest>/<kernel>/<digest of the contents>      signed, JSON lines as in an exported file

An object is never changed. Who shares first takes what is there, stores one object with all of it and its own results, and
removes those that it has taken. So results that two machines share at the same moment are both there afterwards.

A pin is left out: it says what one machine shall run.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ..cache.remote_tiers import resolve_remotes
from ..errors import ArgumentError
from ..remote.address import Remote, open_store
from ..remote.signing import Keys, Refused, keys_for
from ..remote.store import Store
from .record import encode_line
from .records import Records

KIND = "tuning"
FOLDER = "tuning/"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BATCH = 64
_TIMEOUT_SECONDS = 10.0  # for one request; an address may say ?timeout_seconds=…


class TakenRecords(msgspec.Struct, frozen=True):
    """What was taken from a store. `refused` has (name, reason) of each object that is not trusted or cannot be read."""

    names: tuple[str, ...]
    changed: int  # records and choices that were new here, or newer
    refused: tuple[tuple[str, str], ...] = ()


class SharedRecords(msgspec.Struct, frozen=True):
    """What was shared: records in all, objects that were stored, and what was taken from others on the way."""

    records: int
    stored: int
    changed: int
    refused: tuple[tuple[str, str], ...] = ()


def fetch_records(
    store: Store, keys: Keys, records: Records, *, device: str | None = None, tuned: str | None = None
) -> TakenRecords:
    """Merge what a store has into `records`, as importing a file does: of one device (its fingerprint's digest) or of all.

    Raises what the store raises. What is not trusted is not read.
    """
    folder = f"{FOLDER}{device}/" if device is not None else FOLDER
    wanted = None if tuned is None else _part(tuned)
    names = [name for name in store.list(folder) if wanted is None or name.split("/")[2:3] == [wanted]]
    return _take(store, keys, records, names)


def share_records(
    store: Store,
    keys: Keys,
    records: Records,
    *,
    device: str | None = None,
    tuned: str | None = None,
    ttl_seconds: float | None = None,
) -> SharedRecords:
    """Store what is known of a kernel, of a device (its fingerprint's digest) or of all; what others shared is merged into it.

    Raises what the store raises, and `RemoteError` where no key signs.
    """
    shared = stored = changed = 0
    refused: list[tuple[str, str]] = []
    for count in records.counts():
        if device not in (None, count.device) or tuned not in (None, count.tuned):
            continue
        if not _DIGEST.fullmatch(count.device):
            continue  # imported from a file that somebody wrote
        folder = f"{FOLDER}{count.device}/{_part(count.tuned)}/"
        taken = _take(store, keys, records, list(store.list(folder)))
        changed += taken.changed
        refused += taken.refused
        known = records.of_device(count.tuned, count.device)
        chosen = [choice for choice in records.choices(count.tuned, count.device) if not choice.pinned]
        data = b"".join(sorted([*map(encode_line, known), *map(encode_line, chosen)]))
        name = folder + hashlib.sha256(data).hexdigest()[:32]
        shared += len(known)
        if name not in taken.names:
            store.put(name, keys.seal(KIND, name, data, ttl_seconds), ttl_seconds)
            stored += 1
        for other in taken.names:
            if other != name:
                store.delete(other)
    return SharedRecords(shared, stored, changed, tuple(refused))


def _take(store: Store, keys: Keys, records: Records, names: Iterable[str]) -> TakenRecords:
    pending = list(names)
    taken: list[str] = []
    refused: list[tuple[str, str]] = []
    changed = 0
    while pending:
        batch, pending = pending[:_BATCH], pending[_BATCH:]
        for name, data in store.get_many(batch).items():
            try:
                opened = keys.open(KIND, name, data)
                changed += records.load(_NamedBytes(opened, f"{store.location}/{name}"))
            except (Refused, ArgumentError) as error:
                refused.append((name, str(error)))
            else:
                taken.append(name)
    return TakenRecords(tuple(taken), changed, tuple(refused))


class _NamedBytes(io.BytesIO):
    """Lines in memory, with a name for warnings about bad ones."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self.name = name


def _part(tuned: str) -> str:
    """A kernel's name as a part of a store's names: what can be read of it, and a digest that no other has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", tuned)[:60].strip("-.")
    return f"{plain}-{hashlib.sha256(tuned.encode()).hexdigest()[:12]}"


# --- by address


def take_from(
    remote: Any, records: Records, *, device: str | None = None, tuned: str | None = None
) -> list[tuple[Remote, TakenRecords]]:
    """`fetch_records` from each store of an argument `remote=…`; None takes those of KERNELKEEP_REMOTE."""
    found = []
    for one, store, keys in _opened(remote):
        found.append((one, fetch_records(store, keys, records, device=device, tuned=tuned)))
    return found


def share_with(
    remote: Any, records: Records, *, device: str | None = None, tuned: str | None = None
) -> list[tuple[Remote, SharedRecords]]:
    """`share_records` with each store of an argument `remote=…` that may be written to."""
    found = []
    for one, store, keys in _opened(remote):
        if not one.read_only:
            shared = share_records(store, keys, records, device=device, tuned=tuned, ttl_seconds=one.ttl_seconds)
            found.append((one, shared))
    return found


def _opened(remote: Any) -> Iterator[tuple[Remote, Store, Keys]]:
    remotes = resolve_remotes(remote, timeout_seconds=_TIMEOUT_SECONDS)
    if not remotes:
        raise ArgumentError("remote must name a shared store, such as redis://host/0; or set KERNELKEEP_REMOTE")
    for one in remotes:
        keys = keys_for(one)
        with contextlib.closing(open_store(one)) as store:
            yield one, store, keys
