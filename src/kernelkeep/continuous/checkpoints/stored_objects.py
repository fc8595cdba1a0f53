"""The objects of a checkpoint in a shared store: `run.kkpt`, the older `run.kkpt.41`, and what was there before another run.

An object is what is in the file, in a signed envelope (`remote/signing.py`). It is opened in a private folder, and nothing
decodes a byte before its signature holds and its digest is right.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path

import msgspec

from ...cache.remote_tiers import resolve_remotes
from ...errors import ArgumentError, CheckpointError
from ...remote.address import open_store
from ...remote.signing import Refused, keys_for
from ...remote.store import Store
from ...storage.files import Damaged, create_private, open_regular, remove
from .address import CheckpointAddress
from .file_set import inspect_file, older_path
from .format import DIGEST_BYTES
from .reading import check_whole

_KIND = "checkpoint"
_FEWEST_KEPT = 2  # one damaged object must not be the end
_CHUNK_BYTES = 1 << 20
_LONGEST_REASON = 300


class State(msgspec.Struct, frozen=True):
    """Which checkpoint a file or object holds. No two have the same digest."""

    digest: str
    lineage: str
    sequence: int


def state_of(path: Path) -> State:
    """Which checkpoint a file holds; `OSError` or `Damaged` where it holds none. Its arrays are not checked."""
    found = inspect_file(path)
    if not found.whole:
        raise Damaged("is cut off, or damaged at its end")
    with open_regular(path) as file:
        file.seek(-DIGEST_BYTES, os.SEEK_END)
        return State(file.read().hex(), found.header.lineage, found.sequence)


def in_one_line(error: BaseException, store: Store) -> str:
    """What an exception of a store says, as a part of a sentence that names the address itself."""
    text = " ".join(str(error).split()).removeprefix(f"{store.location}: ") or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"


class StoredObjects:
    """What the store has of one checkpoint. Used by one thread at a time."""

    def __init__(self, address: CheckpointAddress) -> None:
        self.address = address
        (remote,) = resolve_remotes(address.remote)  # a folder that only this user can write to needs no signatures
        self.store = open_store(remote)
        self._keys = keys_for(remote)
        self._newest: State | None = None
        self._occupied = False  # something is there that is not known to be of this run
        self._older: list[int] = []

    def check_writable(self) -> None:
        """`ArgumentError` where nothing can be stored with these options."""
        if self.address.remote.read_only:
            raise ArgumentError(f"{self.address} is read-only, and a run writes its checkpoints there")
        if not self._keys.can_seal:
            raise ArgumentError(f"{self.address}: no key signs here; make one with `kernelkeep keys new`")

    # --- reading

    def fetch(self, name: str, target: Path) -> State | None:
        """Download an object, verify it, and write the checkpoint in it to a new file; None where there is none.

        `Damaged`, often `Refused`, where it must not be used; `CheckpointError` where the store does not answer.
        """
        incoming = target.with_name(f".{target.name}.incoming")
        try:
            remove(incoming)
            try:
                if not self.store.download(name, incoming):
                    return None
            except Exception as error:
                raise CheckpointError(f"{self.address} cannot be read: {in_one_line(error, self.store)}") from error
            with open_regular(incoming) as file:
                file.seek(self._keys.open_file(_KIND, self.address.signed_name, file))
                remove(target)
                with os.fdopen(create_private(target), "wb") as made:
                    shutil.copyfileobj(file, made, _CHUNK_BYTES)
        finally:
            with contextlib.suppress(OSError):
                incoming.unlink()
        try:
            _check_digest(target)
            return state_of(target)
        except Damaged:
            remove(target)
            raise

    def fetch_newest(self, target: Path) -> State | None:
        """`fetch` of the newest one. It is noted as what the next `put` replaces."""
        self._newest, self._occupied = None, False
        try:
            self._newest = self.fetch(self.address.name, target)
        except Damaged:
            self._occupied = True
            raise
        self._older = self.older()
        return self._newest

    def fetch_older(self, target: Path) -> State | None:
        """The youngest good one of the older objects, as a file beside `target`; None where none is good."""
        for number in self.older():
            with contextlib.suppress(Damaged):
                found = self.fetch(f"{self.address.name}.{number}", older_path(target, number))
                if found is not None and found.sequence == number:
                    return found
        return None

    def older(self) -> list[int]:
        """The numbers of the older objects, the youngest first; none where the store cannot list (WebDAV without PROPFIND)."""
        pattern = re.compile(re.escape(self.address.name) + r"\.([1-9][0-9]{0,14})")
        names: list[str] = []
        with contextlib.suppress(Exception):
            names = list(self.store.list(f"{self.address.name}."))
        return sorted((int(match.group(1)) for name in names if (match := pattern.fullmatch(name))), reverse=True)

    # --- writing

    def put(self, path: Path, state: State, keep: int) -> None:
        """Store a file as the newest object; the one before it becomes an older one. Raises what the store raises.

        The object is there whole or not at all. What another run stored is kept as `run.kkpt.before-<time>`.
        """
        name = self.address.name
        if self._occupied or (self._newest is not None and self._newest.lineage != state.lineage):
            self._keep_aside()
        elif self._newest is not None and self._newest.sequence != state.sequence:
            self._keep_older(self._newest.sequence)
        self.store.upload(name, path, self._seal(path))
        self._newest, self._occupied = state, False
        while len(self._older) > max(keep, _FEWEST_KEPT) - 1:
            with contextlib.suppress(Exception):  # it stays, and takes room
                self.store.delete(f"{name}.{self._older[-1]}")
            self._older.pop()

    def _seal(self, path: Path) -> bytes:
        return self._keys.seal_file(_KIND, self.address.signed_name, path)

    def _keep_older(self, number: int) -> None:
        to = f"{self.address.name}.{number}"
        try:
            self.store.copy(self.address.name, to)
        except Exception:  # a server without COPY; this machine's file is the same
            path = older_path(self.address.path, number)
            if not path.exists():
                return
            self.store.upload(to, path, self._seal(path))
        if number not in self._older:
            self._older.insert(0, number)

    def _keep_aside(self) -> None:
        aside = f"{self.address.name}.before-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        self.store.copy(self.address.name, aside)
        for number in self._older:
            self.store.copy(f"{self.address.name}.{number}", f"{aside}.{number}")
        for number in self._older:
            with contextlib.suppress(Exception):
                self.store.delete(f"{self.address.name}.{number}")
        self._older.clear()


def _check_digest(path: Path) -> None:
    """`Damaged` unless every byte of a file is as it was written."""
    with open_regular(path) as file:
        check_whole(file)


def describe_refusal(shown: object, error: Damaged) -> str:
    """Why an object cannot be used, in one sentence."""
    return f"{shown} is refused: {error}" if isinstance(error, Refused) else f"{shown} {error}"
