"""Object stores, WebDAV servers and folders as a store, through obstore: s3://, gs://, az://, http(s)://, file://."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from ..errors import Unsupported
from .address import Remote
from .store import Store


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
        self._location = remote.location
        self._prefix = f"{remote.namespace}/" if remote.namespace else ""
        options: dict[str, Any] = {}
        if urlsplit(remote.url).scheme == "file":
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
