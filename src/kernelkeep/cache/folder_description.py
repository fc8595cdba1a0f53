"""What a shared store says of a GPU folder, so that a machine without that GPU can make one like it."""

from __future__ import annotations

import re

import msgspec

from ..remote.signing import Keys, Refused
from ..remote.store import Store

_KIND = "folder"
FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_FOLDER_NAME = re.compile(r"[a-z]+_[^/\0]+_([0-9a-f]{12})")


class FolderDescription(msgspec.Struct, frozen=True):
    """The name of a GPU folder, and the fingerprint's fields with their digest."""

    folder: str
    fingerprint: dict[str, str]


def describe_folder(store: Store, keys: Keys, described: FolderDescription, ttl_seconds: float | None) -> None:
    """Store what `pull_cache` must know to bring the programs of a GPU."""
    fingerprint = described.fingerprint["digest"]
    sealed = keys.seal(_KIND, fingerprint, msgspec.json.encode(described), ttl_seconds)
    store.put(f"folders/{fingerprint}", sealed, ttl_seconds)


def read_description(keys: Keys, fingerprint: str, sealed: bytes | None) -> FolderDescription | None:
    """What a store says of a folder, verified; None where it is gone."""
    if sealed is None:
        return None
    try:
        found = msgspec.json.decode(keys.open(_KIND, fingerprint, sealed), type=FolderDescription)
    except msgspec.MsgspecError as error:
        raise Refused("tampered", f"it cannot be read: {error}") from None
    name = _FOLDER_NAME.fullmatch(found.folder)
    fits = name is not None and FINGERPRINT.fullmatch(fingerprint) and fingerprint.startswith(name.group(1))
    if not fits or found.fingerprint.get("digest") != fingerprint:
        raise Refused("tampered", "it describes another folder")
    return found
