"""The remote tiers that a cache is to have, from what its caller or KERNELKEEP_REMOTE names."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

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
) -> tuple[Remote, ...]:
    """The stores that an argument `remote=` names, with the options for those that have none of their own.

    A folder that only this user can write to needs no key: who could forge an entry there can do anything already.
    """
    defaults: dict[str, Any] = {"signing_key": signing_key, "allow_unsigned": allow_unsigned}
    if timeout_seconds is not None:
        defaults["timeout_seconds"] = timeout_seconds
    return tuple(_trusting_own_folder(remote, trust) for remote in parse_remotes(given, **defaults))


def _trusting_own_folder(remote: Remote, trust: Trust | None) -> Remote:
    parts = urlsplit(remote.url)
    if parts.scheme == "file" and remote.signing_key is None and not remote.allow_unsigned:
        with contextlib.suppress(OSError):
            make_private_folder(Path(unquote(parts.path)), trust)
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
