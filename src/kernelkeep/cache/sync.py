"""Copying whole cache folders to and from a shared store, without a device.

`push_cache` stores the entries of all GPU folders that the store does not have, and a description of each folder, all
signed. `pull_cache` brings those that are not here, verified, and makes the GPU folders that are missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from .. import settings
from ..errors import ArgumentError, RemoteError
from ..progress.reporter import Reporter, Wanted, reported
from ..remote.address import Remote, open_store
from ..remote.deadline import in_parallel
from ..remote.signing import Keys, keys_for
from ..remote.store import Store
from ..storage.files import Damaged, read_regular
from ..storage.private import default_trust
from .entry import decode
from .entry_files import digest_in
from .filling import folder_to_fill
from .folder_description import FINGERPRINT, FolderDescription, describe_folder, read_description
from .gpu_folder import GpuFolder
from .remote_tiers import resolve_remotes
from .tiers.disk import gpu_folders
from .tiers.remote import WRITE_TIMEOUT_SECONDS, signed_name, stored_name

_PROGRAM = "program"
_BATCH = 64


class SyncReport(msgspec.Struct, frozen=True):
    """What `push_cache` or `pull_cache` did, in one store.

    `copied` entries with so many `bytes`; entries that were `present` already; those that were `refused`, with the reason for
    each: damaged here, or not signed by a trusted key there. `folders` are the GPU folders that took part.
    """

    location: str
    copied: int = 0
    bytes: int = 0
    present: int = 0
    refused: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing was refused."""
        return not self.refused


def push_cache(
    cache_dir: str | os.PathLike[str] | None = None,
    remote: Any = None,
    *,
    signing_key: Any = None,
    allow_unsigned: bool = False,
    folders: Collection[str] | None = None,
    progress: Wanted = False,
) -> list[SyncReport]:
    """Store every entry of a cache folder that the store does not have; a report for each store. `RemoteError` if one fails.

    `remote` is what `ProgramCache` takes. `folders`: the names of the GPU folders to copy, by default all.
    `progress` is True, False or a function of a `kk.Progress`.
    """
    stores = _stores(remote, signing_key, allow_unsigned)
    return _copied(_push, "pushing to", cache_dir, stores, folders, progress)


def pull_cache(
    cache_dir: str | os.PathLike[str] | None = None,
    remote: Any = None,
    *,
    signing_key: Any = None,
    allow_unsigned: bool = False,
    folders: Collection[str] | None = None,
    progress: Wanted = False,
) -> list[SyncReport]:
    """Bring every entry of a store that the cache folder does not have; a report for each store. `RemoteError` if one fails."""
    stores = _stores(remote, signing_key, allow_unsigned, must_exist=True)
    return _copied(_pull, "pulling from", cache_dir, stores, folders, progress)


def _copied(
    copy: Callable[[Path, Store, Keys, Remote, Collection[str] | None, Reporter], SyncReport],
    what: str,
    cache_dir: str | os.PathLike[str] | None,
    stores: Iterator[tuple[Remote, Store, Keys]],
    only: Collection[str] | None,
    progress: Wanted,
) -> list[SyncReport]:
    """What `copy` reports of each store, with its progress shown."""
    root, found = settings.cache_dir(cache_dir), []
    for remote, store, keys in stores:
        with reported(f"{what} {remote.location}", None, progress, unit="programs") as report:
            found.append(copy(root, store, keys, remote, only, report))
    return found


def _stores(
    remote: Any, signing_key: Any, allow_unsigned: bool, *, must_exist: bool = False
) -> Iterator[tuple[Remote, Store, Keys]]:
    options: Any = {"signing_key": signing_key, "allow_unsigned": allow_unsigned}
    found = resolve_remotes(remote, **options, must_exist=must_exist)
    if not found:
        raise ArgumentError(
            "remote must name a shared store, such as redis://host/0; pass it, or set KERNELKEEP_REMOTE"
        )
    for one in found:
        patient = msgspec.structs.replace(one, timeout_seconds=max(WRITE_TIMEOUT_SECONDS, one.timeout_seconds))
        store = open_store(patient)
        try:
            yield one, store, keys_for(one)
        finally:
            store.close()


# --- to the store


def _push(
    root: Path, store: Store, keys: Keys, remote: Remote, only: Collection[str] | None, report: Reporter
) -> SyncReport:
    if remote.read_only:
        raise ArgumentError(f"remote {remote.location} must not be read-only to push to it")
    copied = size = present = 0
    refused: list[str] = []
    took_part = []
    trust = default_trust()
    if root.exists():
        trust.check_folder(root)
    for folder in gpu_folders(root, only, trust):
        if not any(digest_in(path) for path in folder.files()):
            continue  # a driver's own files only
        facts = folder.manifest.read().get("fingerprint")
        fingerprint = facts.get("digest") if isinstance(facts, dict) else None
        if not isinstance(fingerprint, str) or not FINGERPRINT.fullmatch(fingerprint):
            refused.append(f"{folder.path.name}: its manifest does not say what it belongs to")
            continue
        took_part.append(folder.path.name)
        there = _names(store, stored_name(fingerprint, ""))
        here = [(digest, path) for path in folder.files() if (digest := digest_in(path))]
        new = [(digest, path) for digest, path in here if stored_name(fingerprint, digest) not in there]
        present += len(here) - len(new)

        def put(item: tuple[str, Path], folder: GpuFolder = folder, fingerprint: str = fingerprint) -> int | str:
            digest, path = item
            try:
                data, _ = read_regular(path, folder.trust)
                decode(data, digest)
            except (Damaged, OSError) as damage:
                return f"{path.name}: {damage}"
            sealed = keys.seal(_PROGRAM, signed_name(fingerprint, digest), data, remote.ttl_seconds)
            store.put(stored_name(fingerprint, digest), sealed, remote.ttl_seconds)
            return len(data)

        for start in range(0, len(new), _BATCH):
            for done in in_parallel(put, new[start : start + _BATCH], 8):
                if isinstance(done, str):
                    refused.append(done)
                else:
                    copied, size = copied + 1, size + done
            report.reach(copied, f"now {folder.path.name}")
        texts = {str(name): str(value) for name, value in facts.items()} if isinstance(facts, dict) else {}
        describe_folder(store, keys, FolderDescription(folder.path.name, texts), remote.ttl_seconds)
    return SyncReport(remote.location, copied, size, present, tuple(refused), tuple(took_part))


def _names(store: Store, prefix: str) -> set[str]:
    try:
        return set(store.list(prefix))
    except RemoteError as error:
        if "PROPFIND" in str(error):  # a server that cannot list: everything is stored again
            return set()
        raise


# --- from the store


def _pull(
    root: Path, store: Store, keys: Keys, remote: Remote, only: Collection[str] | None, report: Reporter
) -> SyncReport:
    copied = size = present = 0
    refused: list[str] = []
    took_part = []
    for name in sorted(store.list("folders/")):
        try:
            found = read_description(keys, name.removeprefix("folders/"), store.get(name))
        except Damaged as damage:
            refused.append(f"{name}: {damage}")
            continue
        if found is None or (only is not None and found.folder not in only):
            continue
        fingerprint = found.fingerprint["digest"]
        folder = folder_to_fill(root, found.folder, found.fingerprint)
        took_part.append(found.folder)
        prefix = stored_name(fingerprint, "")
        there = sorted(one[len(prefix) :] for one in store.list(prefix))
        new = [digest for digest in there if FINGERPRINT.fullmatch(digest) and not folder.has(digest)]
        present += len(there) - len(new)
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            brought = store.get_many([stored_name(fingerprint, digest) for digest in batch])
            for digest in batch:
                sealed = brought.get(stored_name(fingerprint, digest))
                if sealed is None:  # it expired meanwhile
                    continue
                try:
                    data = keys.open(_PROGRAM, signed_name(fingerprint, digest), sealed)
                    decode(data, digest)
                except Damaged as damage:
                    refused.append(f"{found.folder}/{digest[:16]}: {damage}")
                    continue
                folder.write(digest, data)
                copied, size = copied + 1, size + len(data)
            report.reach(copied, f"now {found.folder}")
    return SyncReport(remote.location, copied, size, present, tuple(refused), tuple(took_part))
