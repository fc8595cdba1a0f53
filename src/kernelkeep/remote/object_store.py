"""Object stores, WebDAV servers and folders as a store, through obstore: s3://, gs://, az://, http(s)://, file://."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ..errors import Unsupported
from ..storage.locks import FileLock
from .address import Remote
from .store import Store, Versioned

_CONDITIONAL = ("s3", "gs", "az", "file")  # HTTP has the headers, and WebDAV servers do not look at them
_LOCK_SECONDS = 5.0


class ObjectStore(Store):
    """Names become objects `<prefix of the address>/<namespace>/<name>`; without a namespace, `<prefix>/<name>`."""

    def __init__(self, remote: Remote) -> None:
        try:
            import obstore
            from obstore import store as kinds
        except ImportError:
            raise Unsupported(
                "remote", f"a {urlsplit(remote.url).scheme}:// store needs obstore: pip install 'kernelkeep[remote]'"
            ) from None
        self._obstore: Any = obstore
        parts = urlsplit(remote.url)
        self.conditional = parts.scheme in _CONDITIONAL
        self._folder = Path(unquote(parts.path)) if parts.scheme == "file" else None
        self._location = remote.location
        self._prefix = f"{remote.namespace}/" if remote.namespace else ""
        options: dict[str, Any] = {}
        if self._folder is not None:
            options["mkdir"] = True
        self._store: Any = kinds.from_url(remote.url, **options)

    @property
    def location(self) -> str:
        """The address without its secrets."""
        return self._location

    def get(self, name: str) -> bytes | None:
        """One GET."""
        try:
            return bytes(self._obstore.get(self._store, self._prefix + name).bytes())
        except FileNotFoundError:
            return None

    def put(self, name: str, data: bytes, ttl_seconds: float | None = None) -> None:
        """One PUT."""
        self._obstore.put(self._store, self._prefix + name, data)

    def delete(self, name: str) -> None:
        """One DELETE."""
        try:
            self._obstore.delete(self._store, self._prefix + name)
        except FileNotFoundError:
            return

    def copy(self, name: str, to: str) -> bool:
        """A copy that the server makes."""
        try:
            self._obstore.copy(self._store, self._prefix + name, self._prefix + to)
        except FileNotFoundError:
            return False
        return True

    def list(self, prefix: str) -> Iterator[str]:
        """Page by page."""
        start = len(self._prefix)
        folder = (self._prefix + prefix).rpartition("/")[0]
        for page in self._obstore.list(self._store, prefix=folder):
            for found in page:
                if found["path"].startswith(self._prefix + prefix):
                    yield found["path"][start:]

    def create(self, name: str, data: bytes, ttl_seconds: float | None = None) -> str | None:
        """One PUT with `If-None-Match: *`, or its like."""
        try:
            return _version(self._obstore.put(self._store, self._prefix + name, data, mode="create"))
        except self._obstore.exceptions.AlreadyExistsError:
            return None

    def get_versioned(self, name: str) -> Versioned | None:
        """One GET."""
        try:
            found = self._obstore.get(self._store, self._prefix + name)
            return Versioned(bytes(found.bytes()), _version(found.meta))
        except FileNotFoundError:
            return None

    def replace(self, name: str, data: bytes, version: str, ttl_seconds: float | None = None) -> str | None:
        """One PUT with `If-Match`, or its like. In a folder, a lock file does the same."""
        if self._folder is not None:
            return self._replace_file(name, data, version)
        e_tag, _, number = version.partition(" ")
        mode = {key: value for key, value in (("e_tag", e_tag), ("version", number)) if value}
        try:
            return _version(self._obstore.put(self._store, self._prefix + name, data, mode=mode))
        except (self._obstore.exceptions.PreconditionError, FileNotFoundError):
            return None

    def _replace_file(self, name: str, data: bytes, version: str) -> str | None:
        assert self._folder is not None
        with FileLock(self._folder / f"{self._prefix}{name}.lock").held(_LOCK_SECONDS):
            found = self.get_versioned(name)
            if found is None or found.version != version:
                return None
            return _version(self._obstore.put(self._store, self._prefix + name, data))


def _version(made: Any) -> str:
    """The entity tag, and where a store numbers its versions the number behind it."""
    return f"{made['e_tag'] or ''} {made['version'] or ''}".rstrip()
