"""Addresses of shared stores, with the options of each: `redis://host/0`, `s3://bucket/prefix`, `https://host/path`, `file:///shared`.

    ProgramCache(device, remote="redis://host/0")
    ProgramCache(device, remote=[kk.Remote("redis://host/0", namespace="team"), kk.Remote("s3://bucket/kernels", read_only=True)])

Options may be in the address too: `redis://host/0?namespace=team&read_only=1&ttl_seconds=86400&timeout_seconds=0.2`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from .. import settings
from ..errors import ArgumentError
from .store import Store

_REDIS = ("redis", "rediss", "unix")
_OBJECTS = ("s3", "gs", "az", "http", "https", "file")
_OPTIONS = {"namespace", "read_only", "ttl_seconds", "timeout_seconds", "allow_unsigned"}
_OPTION = re.compile(r"[A-Za-z0-9_.-]+")
# Of all options in an address, these may be shown: they help to find a mistake and are no secrets.
_PUBLIC_OPTIONS = {"endpoint", "region", "allow_http", "virtual_hosted_style_request", "db", "protocol"}
_NAMESPACE = re.compile(r"(?!\.)[A-Za-z0-9._-]{0,64}")  # a dot at the start would make ".."


class _Address(msgspec.Struct, frozen=True):
    """What `Remote` takes without a keyword."""

    url: str


class Remote(_Address, frozen=True, kw_only=True):
    """A shared store and how it is used. `repr` shows no secret.

    `signing_key`: bytes for HMAC, or the path of an Ed25519 key file; None takes the keys of `kernelkeep keys`.
    `namespace`: what its names begin with; "" for names as they are.
    `timeout_seconds`: how long one lookup may take. `ttl_seconds`: how long entries are kept and their signatures hold.
    `allow_unsigned`: also take entries that nobody signed, from a place where others can write.
    """

    namespace: str = "default"
    read_only: bool = False
    ttl_seconds: float | None = None
    timeout_seconds: float = settings.REMOTE_TIMEOUT_SECONDS
    signing_key: bytes | str | os.PathLike[str] | None = None
    allow_unsigned: bool = False

    @property
    def location(self) -> str:
        """The address without user, password and options."""
        return without_secrets(self.url)

    def __repr__(self) -> str:
        return f"<Remote {self.location}, namespace {self.namespace}{', read-only' if self.read_only else ''}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What rich prints; msgspec's own shows every field."""
        return [("location", self.location), ("namespace", self.namespace), ("read_only", self.read_only)]


def without_secrets(url: str) -> str:
    """An address for people: no user, no password, no options. Where it is not clear what is a password, less is shown."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except (ValueError, AttributeError):  # the second: it is not even a string
        return "an address that cannot be read"
    host, path = parts.netloc.rpartition("@")[2], parts.path
    if not host and parts.scheme not in ("file", "unix"):  # somebody forgot redis:// before user:password@host
        path = path.rpartition("@")[2]
        return path if parts.scheme not in (*_REDIS, *_OBJECTS) else f"{parts.scheme}:{path}"
    if (
        host == parts.netloc and ":" in host and "@" in path + parts.query + parts.fragment
    ):  # a password with /, ? or # in it
        return f"{parts.scheme}://…"
    return _joined(parts._replace(netloc=host, query="", fragment=""))


def _joined(parts: SplitResult) -> str:
    """The address of these parts. `urlunsplit` leaves out the // of schemes that it does not know."""
    return f"unix://{urlunsplit(parts._replace(scheme=''))}" if parts.scheme == "unix" else urlunsplit(parts)


def secrets_in(url: str) -> tuple[str, ...]:
    """What must not be shown of an address: the user, the password and the values of its options, as written and decoded."""
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query)
        values = [parts.username, parts.password, *(value for name, value in options if not _is_public(name, value))]
    except ValueError:
        return (url,)
    found = {form for value in values if value for form in (value, unquote(value), quote(value, safe=""))}
    return tuple(sorted(found, key=len, reverse=True))


def _is_public(name: str, value: str) -> bool:
    return name in _PUBLIC_OPTIONS and "@" not in value


def open_store(remote: Remote) -> Store:
    """Connect lazily: the store is not asked anything yet. `Unsupported` names the extra that is missing."""
    scheme = urlsplit(remote.url).scheme
    if scheme in _REDIS:
        from .redis_store import RedisStore

        return RedisStore(remote)
    from .object_store import CONDITIONAL, ObjectStore, is_usable_here

    if not is_usable_here():
        from .store_process import ProcessStore

        return ProcessStore(remote, conditional=scheme in CONDITIONAL)
    return ObjectStore(remote)


def parse_remotes(given: Any, **defaults: Any) -> tuple[Remote, ...]:
    """The remotes that an argument names: None, an address, a `Remote`, or several of them in order.

    `defaults` are options for those that do not set them. None takes `KERNELKEEP_REMOTE`.
    """
    if given is None:
        try:
            return tuple(_parse(one, defaults) for one in settings.remotes())
        except ArgumentError as error:
            raise ArgumentError(f"KERNELKEEP_REMOTE is set, and {error}") from None
    if isinstance(given, str | Remote):
        given = (given,)
    if isinstance(given, bytes | bytearray) or not isinstance(given, Iterable):
        raise ArgumentError(
            f"remote must be an address such as redis://host/0, a kk.Remote or a list of them, got a {type(given).__name__}"
        )
    return tuple(_parse(one, defaults) for one in given)


def _parse(given: Any, defaults: dict[str, Any]) -> Remote:
    if isinstance(given, Remote):
        unset = {name: value for name, value in defaults.items() if getattr(given, name) == _default(name)}
        remote = msgspec.structs.replace(given, **unset)
    elif isinstance(given, str):
        remote = Remote(url=given, **defaults)
    else:
        raise ArgumentError(
            f"remote must be an address such as redis://host/0 or a kk.Remote, got a {type(given).__name__}"
        )
    return _checked(_with_options_of_address(remote))


def _default(name: str) -> Any:
    return next(field.default for field in msgspec.structs.fields(Remote) if field.name == name)


def _with_options_of_address(remote: Remote) -> Remote:
    if not isinstance(remote.url, str):
        raise ArgumentError(f"remote must have an address such as redis://host/0, got a {type(remote.url).__name__}")
    try:
        parts = urlsplit(remote.url)
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError as error:
        raise ArgumentError(f"remote is not an address: {error}") from None
    if not all(_OPTION.fullmatch(name) for name, _ in query):
        raise ArgumentError(f"remote {remote.location} must have options such as name=value behind its ?")
    if parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
        raise ArgumentError(
            f"remote {remote.location} must be an absolute path with three slashes: file:///shared/folder"
        )
    own = {name: value for name, value in query if name in _OPTIONS}
    rest = urlencode([(name, value) for name, value in query if name not in _OPTIONS])
    try:
        options = {name: value if name == "namespace" else _number(name, value) for name, value in own.items()}
    except ValueError:
        raise ArgumentError(f"an option in the address {remote.location} has no usable value") from None
    changed: dict[str, Any] = options
    return msgspec.structs.replace(remote, url=_joined(parts._replace(query=rest)), **changed)


def _number(name: str, value: str) -> bool | float:
    if name in ("read_only", "allow_unsigned"):
        if value.lower() not in ("0", "1", "true", "false", "yes", "no"):
            raise ValueError(value)
        return value.lower() in ("1", "true", "yes")
    return float(value)


def _checked(remote: Remote) -> Remote:
    scheme = urlsplit(remote.url).scheme
    if scheme not in (*_REDIS, *_OBJECTS):
        known = ", ".join(f"{name}://" for name in (*_REDIS, *_OBJECTS))
        raise ArgumentError(f"remote {remote.location} must begin with one of {known}")
    if not isinstance(remote.namespace, str) or not _NAMESPACE.fullmatch(remote.namespace):
        raise ArgumentError(
            "namespace must be up to 64 letters, digits, dots, dashes and underscores that begin with no dot, "
            f"got {remote.namespace!r}"
        )
    parts = urlsplit(remote.url)
    if parts.fragment or not _has_port(parts):
        raise ArgumentError(
            f"remote {remote.location} must have a number as its port and no #; in a password, write / # ? @ and : as "
            "%2F %23 %3F %40 and %3A"
        )
    if scheme != "file" and not (parts.netloc or (scheme == "unix" and parts.path)):
        raise ArgumentError(f"remote {remote.location} must name a host or a bucket, such as {scheme}://host/path")
    for flag in ("read_only", "allow_unsigned"):
        if not isinstance(getattr(remote, flag), bool):
            raise ArgumentError(f"{flag} must be True or False, got {getattr(remote, flag)!r}")
    for name, value in (("timeout_seconds", remote.timeout_seconds), ("ttl_seconds", remote.ttl_seconds)):
        if value is None and name == "ttl_seconds":
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value < settings.REMOTE_LONGEST_SECONDS
        ):
            raise ArgumentError(f"{name} must be a positive number of seconds, got {value!r}")
    return remote


def _has_port(parts: SplitResult) -> bool:
    """Whether the port is a number or missing."""
    try:
        return parts.port is None or parts.port > 0
    except ValueError:
        return False
