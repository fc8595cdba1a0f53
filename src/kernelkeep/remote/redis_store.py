"""Redis and Valkey as a store, through redis-py: redis://, rediss:// (TLS) and unix:// (a socket's path)."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..errors import ArgumentError, RemoteError, Unsupported
from ..installation import install_command
from .address import Remote
from .failures import Failures
from .store import BULK_TIMEOUT_SECONDS, Store, Versioned

if TYPE_CHECKING:
    from .redis_lease import RedisLease

_LARGEST_VALUE = 512 << 20  # Redis' own limit
# Compared and set in one step of the server. A version is the SHA-1 of the bytes, which scripts can compute too.
_REPLACE = """
local found = redis.call('GET', KEYS[1])
if not found or redis.sha1hex(found) ~= ARGV[1] then return 0 end
if ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2])
else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""


class RedisStore(Store):
    """Names become keys `kernelkeep:<namespace>:<name>`. redis-py is loaded at the first call."""

    conditional = True
    keeps_ttl = True

    def __init__(self, remote: Remote) -> None:
        if importlib.util.find_spec("redis") is None:
            raise Unsupported("remote", f"a redis:// store needs redis-py: {install_command('remote')}")
        parts = urlsplit(remote.url)
        if parts.scheme != "unix" and not re.fullmatch("/?[0-9]*", parts.path):  # redis-py would take database 0
            raise ArgumentError(
                f"remote {remote.location} must end in the number of a database, such as redis://host/0; to keep teams apart, "
                "use namespace="
            )
        self._remote = remote
        self._failures = Failures(remote)
        self._prefix = f"kernelkeep:{remote.namespace}:"
        self._clients: dict[float, Any] = {}
        self._opening = threading.Lock()

    @property
    def location(self) -> str:
        """The server, without its password."""
        return self._remote.location

    def prepare(self) -> None:
        """Load redis-py."""
        self._client()

    def _client(self, timeout_seconds: float | None = None) -> Any:
        limit = timeout_seconds or self._remote.timeout_seconds
        client = self._clients.get(limit)
        if client is None:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry

            with self._opening:
                client = self._clients.get(limit)
                if client is None:
                    with self._failures.translated():
                        client = self._clients[limit] = redis.Redis.from_url(
                            self._remote.url,
                            socket_timeout=limit,
                            socket_connect_timeout=limit,
                            retry=Retry(NoBackoff(), 0),
                            protocol=2,  # the third needs one more round trip for each connection
                        )
        return client

    def get(self, name: str) -> bytes | None:
        """One GET."""
        with self._failures.translated():
            data: bytes | None = self._client().get(self._prefix + name)
            return data

    def get_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """One MGET."""
        wanted = list(names)
        with self._failures.translated():
            found = self._client().mget([self._prefix + name for name in wanted]) if wanted else []
            return {name: data for name, data in zip(wanted, found, strict=True) if data is not None}

    def put(self, name: str, data: bytes, ttl_seconds: float | None = None) -> None:
        """One SET, with an expiry where there is one."""
        self._check_size(len(data))
        with self._failures.translated():
            self._client().set(self._prefix + name, data, px=_milliseconds(ttl_seconds))

    def delete(self, name: str) -> None:
        """One DEL."""
        with self._failures.translated():
            self._client().delete(self._prefix + name)

    def list(self, prefix: str) -> Iterator[str]:
        """SCAN, page by page. A name may come twice."""
        start = len(self._prefix)
        pattern = "".join(f"\\{letter}" if letter in "*?[]\\" else letter for letter in self._prefix + prefix) + "*"
        seen: set[str] = set()
        with self._failures.translated():
            for key in self._client().scan_iter(match=pattern, count=1000):
                name = key.decode(errors="replace")[start:]
                if name not in seen:
                    seen.add(name)
                    yield name

    def upload(self, name: str, path: Path, head: bytes = b"") -> None:
        """One SET, with more time for it. Redis keeps at most 512 MiB under a name."""
        self._check_size(len(head) + path.stat().st_size)
        with self._failures.translated():
            self._client(self._bulk_seconds).set(self._prefix + name, head + path.read_bytes())

    def download(self, name: str, path: Path) -> bool:
        """One GET, with more time for it."""
        with self._failures.translated():
            data = self._client(self._bulk_seconds).get(self._prefix + name)
        if data is None:
            return False
        path.write_bytes(data)
        return True

    @property
    def _bulk_seconds(self) -> float:
        return max(BULK_TIMEOUT_SECONDS, self._remote.timeout_seconds)

    def _check_size(self, size: int) -> None:
        if size > _LARGEST_VALUE:
            raise RemoteError(f"{self.location}: Redis keeps at most 512 MiB under a name, and this has {size:,} bytes")

    def copy(self, name: str, to: str) -> bool:
        """One COPY: Redis 6.2 and later."""
        with self._failures.translated():
            return bool(self._client(self._bulk_seconds).copy(self._prefix + name, self._prefix + to, replace=True))

    def create(self, name: str, data: bytes, ttl_seconds: float | None = None) -> str | None:
        """SET NX."""
        with self._failures.translated():
            made = self._client().set(self._prefix + name, data, px=_milliseconds(ttl_seconds), nx=True)
            return _version(data) if made else None

    def get_versioned(self, name: str) -> Versioned | None:
        """One GET."""
        data = self.get(name)
        return None if data is None else Versioned(data, _version(data))

    def replace(self, name: str, data: bytes, version: str, ttl_seconds: float | None = None) -> str | None:
        """One script on the server."""
        arguments = (version, data, _milliseconds(ttl_seconds) or "")
        done = self._run_script(_REPLACE, (self._prefix + name,), arguments)
        return _version(data) if done else None

    def _run_script(self, script: str, keys: tuple[str, ...], arguments: tuple[Any, ...]) -> Any:
        with self._failures.translated():
            return self._client().register_script(script)(keys=keys, args=arguments)

    def lease(self, name: str, duration_seconds: float | None = None) -> RedisLease:
        """A key that expires, and a counter for the tokens."""
        from .lease import DURATION_SECONDS
        from .redis_lease import RedisLease

        seconds = duration_seconds or DURATION_SECONDS
        return RedisLease(self._run_script, self._prefix + name, self._prefix + "lease-tokens", seconds)

    def abort(self) -> None:
        """Close the sockets of calls that still wait: a server that keeps sending would fill the memory."""
        for client in list(self._clients.values()):
            client.connection_pool.disconnect(inuse_connections=True)

    def close(self) -> None:
        """Close the connections."""
        for client in list(self._clients.values()):
            client.close()


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, int(seconds * 1000))


def _version(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
