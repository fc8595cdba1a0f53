"""The remote tiers that a cache is to have, from what its caller or KERNELKEEP_REMOTE names."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from ..errors import RemoteError
from ..platforms import system
from ..remote.address import Remote, parse_remotes
from ..remote.signing import keys_for
from ..storage.private import Trust, make_private_folder
from .folder_description import FolderDescription
from .tiers.remote import RemoteTier


def resolve_remotes(
    given: Any,
    *,
    signing_key: Any = None,
    allow_unsigned: bool = False,
    timeout_seconds: float | None = None,
    trust: Trust | None = None,
    must_exist: bool = False,
) -> tuple[Remote, ...]:
    """The stores that an argument `remote=` names, with the options for those that have none of their own.

    A folder that only this user can write to needs no key: who could forge an entry there can do anything already.
    With `must_exist`, a folder that is not there is a `RemoteError`: to read from, it is a mistake in the address.
    """
    defaults: dict[str, Any] = {"signing_key": signing_key, "allow_unsigned": allow_unsigned}
    if timeout_seconds is not None:
        defaults["timeout_seconds"] = timeout_seconds
    remotes = parse_remotes(given, **defaults)
    for remote in remotes if must_exist else ():
        if (folder := _folder_of(remote)) is not None and not folder.is_dir():
            raise RemoteError(f"there is no folder {remote.location}")
    return tuple(_trusting_own_folder(remote, trust) for remote in remotes)


def _folder_of(remote: Remote) -> Path | None:
    parts = urlsplit(remote.url)
    return Path(system.path_of_url(unquote(parts.path))) if parts.scheme == "file" else None


def _trusting_own_folder(remote: Remote, trust: Trust | None) -> Remote:
    folder = _folder_of(remote) if system.HAS_OWNERS else None  # without owners, nobody knows whose it is
    if folder is not None and remote.signing_key is None and not remote.allow_unsigned:
        with contextlib.suppress(OSError):
            make_private_folder(folder, trust)
            return msgspec.structs.replace(remote, allow_unsigned=True)
    return remote


def open_remote_tiers(remotes: tuple[Remote, ...], described: FolderDescription) -> list[RemoteTier]:
    """A tier for each store. No server is asked. `ArgumentError` where others can write and there is no key."""
    names = ["remote", *(f"remote {number}" for number in range(2, len(remotes) + 1))]
    fingerprint = described.fingerprint["digest"]
    return [
        RemoteTier(remote, keys_for(remote), fingerprint, name, described)
        for remote, name in zip(remotes, names, strict=False)
    ]
