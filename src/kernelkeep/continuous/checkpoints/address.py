"""Checkpoints in a shared store: `s3://bucket/run.kkpt`, `gs://`, `az://`, `https://`, `redis://host/0/run.kkpt`, `file://`.

Everything that this machine does with such a checkpoint it does with a copy in a private folder of its cache:

    <cache folder>/checkpoints/<digest of the address>/run.kkpt        and the older run.kkpt.41 beside it
    <cache folder>/checkpoints/<digest of the address>/synchronised    which state the store and this copy last had in common
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import msgspec

from ... import settings
from ...errors import ArgumentError
from ...remote.address import Remote, parse_remotes, without_secrets

TIMEOUT_SECONDS = 20.0  # for one request; an address may say ?timeout_seconds=…
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")
_TORN = re.compile(r"(s3|gs|az|https?|rediss?|file):/[^/]")  # what pathlib makes of an address
_NAME = re.compile(r"[A-Za-z0-9._@=+-]{1,200}")
_SERVER = re.compile(r"endpoint|account_name|region")
_SERVER_VARIABLE = re.compile(r"(AWS_ENDPOINT|AZURE_STORAGE_ENDPOINT|AZURE_STORAGE_ACCOUNT_NAME|GOOGLE_BASE_URL).*")
_OLDER = re.compile(r"(\.before-[0-9TZ-]+)?(\.[1-9][0-9]{0,14})?$")


class CheckpointAddress(msgspec.Struct, frozen=True):
    """Where a checkpoint is in a shared store. `repr` and `str` show no secret."""

    remote: Remote  # the folder that it is in
    name: str
    path: Path  # this machine's copy

    @property
    def location(self) -> str:
        """The address for people."""
        return f"{self.remote.location.rstrip('/')}/{self.name}"

    @property
    def signed_name(self) -> str:
        """The name that signatures bind. Older checkpoints have that of the newest, from which they were copied.

        A shared folder may be mounted anywhere, so for `file://` it is the name alone; in other stores the path is part of it.
        """
        parts = urlsplit(self.remote.url)
        folder = "" if parts.scheme == "file" else parts.path.strip("/")
        return f"{folder}/{_OLDER.sub('', self.name)}".lstrip("/")

    def __str__(self) -> str:
        return self.location

    def __repr__(self) -> str:
        return f"<CheckpointAddress {self.location}>"


def is_address(path: object) -> bool:
    """Whether this names a checkpoint in a shared store, and not a file."""
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def shown(path: str | os.PathLike[str]) -> str:
    """A path or an address for people: without secrets."""
    return without_secrets(path) if isinstance(path, str) and is_address(path) else os.fspath(path)


def check_not_torn(path: str | os.PathLike[str]) -> None:
    """`ArgumentError` for an address in a `pathlib.Path`, which has lost a slash."""
    if isinstance(path, os.PathLike) and _TORN.match(os.fspath(path)):
        raise ArgumentError(f"an address must be a string, got {type(path).__name__}; pass it without Path(…)")


def parse_address(url: str) -> CheckpointAddress:
    """The address of a checkpoint; `ArgumentError` says what is wrong with it. Asks no server anything."""
    (remote,) = parse_remotes(url, namespace="", timeout_seconds=TIMEOUT_SECONDS)
    parts = urlsplit(remote.url)
    if parts.scheme == "unix":
        raise ArgumentError(f"{remote.location} cannot be a checkpoint: name the server by redis://host/0/NAME")
    folder, _, name = parts.path.rpartition("/")
    if not _NAME.fullmatch(name) or (parts.scheme.startswith("redis") and name.isdecimal()):
        raise ArgumentError(
            f"{remote.location} cannot be a checkpoint: the address must end in a name of letters, digits and ._@=+- , such "
            "as /run.kkpt"
        )
    folder_remote = msgspec.structs.replace(remote, url=urlunsplit(parts._replace(path=folder)))
    if parts.scheme.startswith("redis"):  # the path is the number of the database, and then a name
        database, _, rest = folder.strip("/").partition("/")
        if rest or not (database.isdecimal() or not database):
            raise ArgumentError(f"{remote.location} cannot be a checkpoint: write redis://host/DATABASE/NAME")
    where = "\0".join((f"{folder_remote.location.rstrip('/')}/{name}", remote.namespace, *_servers(parts.query)))
    digest = hashlib.sha256(where.encode()).hexdigest()[:32]
    return CheckpointAddress(folder_remote, name, settings.cache_dir() / "checkpoints" / digest / name)


def _servers(query: str) -> list[str]:
    """What else says which store an address means, without secrets: the same bucket may be on several servers."""
    options = [f"{name}={value}" for name, value in sorted(parse_qsl(query)) if _SERVER.search(name.lower())]
    return options + [
        f"{name}={value}" for name, value in sorted(os.environ.items()) if _SERVER_VARIABLE.fullmatch(name)
    ]
