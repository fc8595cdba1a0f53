"""Object stores, WebDAV servers and folders as a store, through obstore: s3://, gs://, az://, http(s)://, file://.

Credentials come from the environment, as the provider's own tools take them, or from options in the address:
`s3://bucket/prefix?region=eu-central-1&endpoint=http://localhost:9000&allow_http=true`. Their names are obstore's. A web
server is told the user and password in the address, `https://user:password@host/path`, or `?bearer_token=`.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from ..errors import RemoteError, Unsupported
from ..installation import install_command
from ..platforms import system
from ..storage.files import LARGEST_FILE, Damaged, create_folder
from ..storage.locks import FileLock, LockUnavailable
from .address import Remote
from .deadline import in_parallel
from .failures import Failures
from .store import BULK_TIMEOUT_SECONDS, Store, Versioned
from .web_server import authorization, put_pieces

_LARGEST_OBJECT = LARGEST_FILE + 4096  # what `get` brings into memory: an entry in its envelope
_PIECE = 8 << 20  # of an upload; S3 wants at least 5 MiB
_CLIENT_OPTIONS = ("allow_http", "allow_invalid_certificates", "proxy_url", "user_agent")
CONDITIONAL = ("s3", "gs", "az", "file")  # HTTP has the headers, and WebDAV servers do not look at them
_LONGEST_UPLOAD_SECONDS = 86400
_LOCK_SECONDS = 10.0
# obstore's threads belong to the process that used it first. In a forked child a call would wait for them for ever.
_threads_of: dict[str, int] = {}


def is_usable_here() -> bool:
    """Whether this process is not a fork of one that used obstore."""
    return _threads_of.get("process", os.getpid()) == os.getpid()


class ObjectStore(Store):
    """Names become objects `<prefix of the address>/<namespace>/<name>`; without a namespace, `<prefix>/<name>`.

    obstore is loaded at the first call. A time to live is not kept by the store itself: set a rule for the bucket's lifecycle.
    """

    def __init__(self, remote: Remote) -> None:
        self._scheme = urlsplit(remote.url).scheme
        if importlib.util.find_spec("obstore") is None:
            raise Unsupported("remote", f"a {self._scheme}:// store needs obstore: {install_command('remote')}")
        self._remote = remote
        self._failures = Failures(remote)
        self._prefix = f"{remote.namespace}/" if remote.namespace else ""
        self._folder = Path(system.path_of_url(unquote(urlsplit(remote.url).path))) if self._scheme == "file" else None
        self._stores: dict[bool, Any] = {}
        self._opening = threading.Lock()
        self._is_web = self._scheme in ("http", "https")
        self._bulk_seconds = max(BULK_TIMEOUT_SECONDS, remote.timeout_seconds)
        self.conditional = self._scheme in CONDITIONAL

    @property
    def location(self) -> str:
        """The address without its secrets."""
        return self._remote.location

    def prepare(self) -> None:
        """Load obstore."""
        with self._failures.translated():
            self._store()

    # --- obstore

    @property
    def _api(self) -> Any:
        import obstore

        return obstore

    def _store(self, *, bulk: bool = False) -> Any:
        """obstore's own object; with `bulk`, one whose requests may take as long as bytes arrive."""
        if _threads_of.setdefault("process", os.getpid()) != os.getpid():
            raise RemoteError(
                f"{self.location} cannot be used in a process that was forked from one that used such a store: its threads are "
                'not here; start the process with the method "spawn"'
            )
        store = self._stores.get(bulk)
        if store is None:
            with self._opening:
                store = self._stores.get(bulk)
                if store is None:
                    store = self._stores[bulk] = self._open(bulk)
        return store

    def _open(self, bulk: bool) -> Any:
        from obstore.store import LocalStore, from_url

        if self._folder is not None:
            create_folder(self._folder)
            return LocalStore(self._folder)
        parts = urlsplit(self._remote.url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        limit = datetime.timedelta(seconds=self._remote.timeout_seconds)
        client: dict[str, Any] = {"timeout": limit, "connect_timeout": limit}
        if bulk:
            slow = datetime.timedelta(seconds=self._bulk_seconds)
            longest = datetime.timedelta(seconds=_LONGEST_UPLOAD_SECONDS)
            client = {"timeout": longest, "connect_timeout": slow, "read_timeout": slow}
        if self._scheme == "http":
            client["allow_http"] = True
        for name in _CLIENT_OPTIONS:
            if name in options:
                value = options.pop(name)
                client[name] = value.lower() in ("1", "true", "yes") if name.startswith("allow") else value
        header = authorization(parts, options) if self._is_web else None
        if header is not None:  # obstore takes no user from the address
            client["default_headers"] = {"authorization": header}
            parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        if options and self._is_web:
            raise RemoteError(f"{self.location}: an http(s):// store has no options named {', '.join(sorted(options))}")
        more: dict[str, Any] = {"config": options} if options else {}
        open_url: Any = from_url  # its overloads leave out options that are known only when the program runs
        return open_url(
            urlunsplit(parts._replace(query="")),
            client_options=client,
            retry_config={"max_retries": 0, "retry_timeout": limit},
            **more,
        )

    # --- the store

    def get(self, name: str) -> bytes | None:
        """One GET."""
        found = self.get_versioned(name)
        return None if found is None else found.data

    def get_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """Several GETs at a time."""
        wanted = list(names)
        found = in_parallel(self._get_unless_too_large, wanted)
        return {name: data for name, data in zip(wanted, found, strict=True) if data is not None}

    def _get_unless_too_large(self, name: str) -> bytes | None:
        with contextlib.suppress(Damaged):
            return self.get(name)
        return None

    def put(self, name: str, data: bytes, ttl_seconds: float | None = None) -> None:
        """One PUT."""
        with self._failures.translated(), self._changing(name):
            self._api.put(self._store(), self._prefix + name, data, use_multipart=False)

    def delete(self, name: str) -> None:
        """One DELETE."""
        with self._failures.translated(), self._changing(name), contextlib.suppress(FileNotFoundError):
            self._api.delete(self._store(), self._prefix + name)

    def list(self, prefix: str) -> Iterator[str]:
        """Page by page; from a WebDAV server folder by folder, with PROPFIND."""
        whole = self._prefix + prefix
        with self._failures.translated():
            folder = whole.rpartition("/")[0]
            found = self._walk(folder) if self._is_web else self._pages(folder)
            for path in found:
                if path.startswith(whole) and not path.startswith(f"{self._prefix}.locks/"):
                    yield path[len(self._prefix) :]

    def _pages(self, folder: str) -> Iterator[str]:
        for page in self._api.list(self._store(), prefix=folder):
            for found in page:
                yield found["path"]

    def _walk(self, folder: str) -> Iterator[str]:
        """WebDAV servers list one folder at a time; nginx refuses to do more. What they answer begins at the server's root."""
        root = unquote(urlsplit(self._remote.url).path).strip("/")
        start = len(root) + 1 if root else 0
        pending, seen = [folder], {folder}
        while pending:
            try:
                found = self._api.list_with_delimiter(self._store(), prefix=pending.pop())
            except FileNotFoundError:
                continue
            except Exception as error:
                raise RemoteError(
                    f"{self.location} cannot be listed ({self._failures.describe(error)}); listing needs WebDAV's PROPFIND, "
                    "which nginx has with its dav-ext module: dav_ext_methods PROPFIND"
                ) from None
            for one in found["objects"]:
                yield one["path"][start:]
            below = {path[start:] for path in found["common_prefixes"]} - seen
            seen |= below
            pending += below

    def copy(self, name: str, to: str) -> bool:
        """A copy that the server makes. A WebDAV server would want each folder to be made first, so it comes through here."""
        if self._is_web:
            return super().copy(name, to)
        with self._failures.translated(), self._changing(to):
            try:
                self._api.copy(self._store(bulk=True), self._prefix + name, self._prefix + to)
            except FileNotFoundError:
                return False
            return True

    # --- more than fits in memory

    def upload(self, name: str, path: Path, head: bytes = b"") -> None:
        """A multipart upload, visible when it is complete. A web server has none: there it is one PUT."""
        with self._failures.translated(), self._changing(name), path.open("rb") as file:
            pieces = _pieces(head, file)
            if self._is_web:
                parts = urlsplit(self._remote.url)
                header = authorization(parts, dict(parse_qsl(parts.query)))
                size = len(head) + path.stat().st_size
                put_pieces(parts, self._prefix + name, header, pieces, size, self._bulk_seconds)
            else:
                self._api.put(self._store(bulk=True), self._prefix + name, pieces, chunk_size=_PIECE, max_concurrency=4)

    def download(self, name: str, path: Path) -> bool:
        """One GET, written as it comes. A download that breaks off leaves no file."""
        with self._failures.translated():
            try:
                found = self._api.get(self._store(bulk=True), self._prefix + name)
            except FileNotFoundError:
                return False
            try:
                with path.open("wb") as file:
                    for piece in found.stream(min_chunk_size=1 << 20):
                        file.write(piece)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
            return True

    # --- conditional puts

    @contextlib.contextmanager
    def _changing(self, name: str, *, alone: bool = False) -> Iterator[None]:
        """A folder has no conditional puts. A lock file makes the changes under a name wait for each other.

        Without `alone` the block goes on where there is no lock to be had.
        """
        if self._folder is None:
            yield
            return
        lock = FileLock(self._folder / self._prefix / ".locks" / f"{name.replace('/', '+')}.lock")
        try:
            lock.acquire(_LOCK_SECONDS)
        except LockUnavailable as error:
            if alone:
                raise RemoteError(f"{self.location}: {error}") from None
        try:
            yield
        finally:
            lock.release()

    def create(self, name: str, data: bytes, ttl_seconds: float | None = None) -> str | None:
        """One PUT with `If-None-Match: *`, or its like."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._failures.translated(), self._changing(name, alone=True):
            try:
                made = self._api.put(self._store(), self._prefix + name, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return None
            return _version(made)

    def get_versioned(self, name: str) -> Versioned | None:
        """One GET; the version is the entity tag."""
        with self._failures.translated():
            try:
                found = self._api.get(self._store(), self._prefix + name)
                if (size := found.meta["size"]) <= _LARGEST_OBJECT:
                    return Versioned(bytes(found.bytes()), _version(found.meta))
            except FileNotFoundError:
                return None
        raise Damaged(f"it is far too large, {size:,} bytes")

    def replace(self, name: str, data: bytes, version: str, ttl_seconds: float | None = None) -> str | None:
        """One PUT with `If-Match`, or its like. In a folder, a lock file does the same."""
        from obstore.exceptions import PreconditionError

        e_tag, _, number = version.partition(" ")
        mode: Any = {key: value for key, value in (("e_tag", e_tag), ("version", number)) if value}
        with self._failures.translated(), self._changing(name, alone=True):
            try:
                if self._folder is not None:
                    if _version(self._api.head(self._store(), self._prefix + name)) != version:
                        return None
                    mode = "overwrite"
                return _version(self._api.put(self._store(), self._prefix + name, data, mode=mode, use_multipart=False))
            except (PreconditionError, FileNotFoundError):
                return None


def _version(made: Any) -> str:
    """The entity tag, and where a store numbers its versions the number behind it."""
    return f"{made['e_tag'] or ''} {made['version'] or ''}".rstrip()


def _pieces(head: bytes, file: Any) -> Iterator[bytes]:
    if head:
        yield head
    while piece := file.read(_PIECE):
        yield piece
