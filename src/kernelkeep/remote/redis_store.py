"""Redis and Valkey as a store, through redis-py."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from .address import Remote
from .store import Store, Versioned

if TYPE_CHECKING:
    from .redis_lease import RedisLease

# A version is the SHA-1 of the bytes, which scripts can compute too.
_REPLACE = """
local found = redis.call('GET', KEYS[1])
if not found or redis.sha1hex(found) ~= ARGV[1] then return 0 end
if ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
"""


class RedisStore(Store):
    """Names become keys `kernelkeep:<namespace>:<name>`."""

    conditional = True

    def __init__(self, remote: Remote) -> None:
        try:
            import redis
        except ImportError:
            raise Unsupported("remote", "a redis:// store needs redis-py: pip install 'kernelkeep[remote]'") from None
        self._location = remote.location
        self._prefix = f"kernelkeep:{remote.namespace}:"
        limit = remote.timeout_seconds
        self._client: Any = redis.Redis.from_url(remote.url, socket_timeout=limit, socket_connect_timeout=limit)

    @property
    def location(self) -> str:
        """The server, without its password."""
        return self._location

    def get(self, name: str) -> bytes | None:
        """One GET."""
        data: bytes | None = self._client.get(self._prefix + name)
        return data

    def get_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """One MGET."""
        wanted = list(names)
        found = self._client.mget([self._prefix + name for name in wanted]) if wanted else []
        return {name: data for name, data in zip(wanted, found, strict=True) if data is not None}

    def put(self, name: str, data: bytes, ttl_seconds: float | None = None) -> None:
        """One SET, with an expiry where there is one."""
        self._client.set(self._prefix + name, data, px=_milliseconds(ttl_seconds))

    def delete(self, name: str) -> None:
        """One DEL."""
        self._client.delete(self._prefix + name)

    def copy(self, name: str, to: str) -> bool:
        """One COPY: Redis 6.2 and later."""
        return bool(self._client.copy(self._prefix + name, self._prefix + to, replace=True))

    def list(self, prefix: str) -> Iterator[str]:
        """SCAN, page by page."""
        start = len(self._prefix)
        pattern = "".join(f"[{letter}]" if letter in "*?" else letter for letter in self._prefix + prefix) + "*"
        for key in self._client.scan_iter(match=pattern, count=1000):
            yield key.decode()[start:]

    def create(self, name: str, data: bytes, ttl_seconds: float | None = None) -> str | None:
        """SET NX."""
        made = self._client.set(self._prefix + name, data, px=_milliseconds(ttl_seconds), nx=True)
        return _version(data) if made else None

    def get_versioned(self, name: str) -> Versioned | None:
        """One GET."""
        data = self.get(name)
        return None if data is None else Versioned(data, _version(data))

    def replace(self, name: str, data: bytes, version: str, ttl_seconds: float | None = None) -> str | None:
        """One script."""
        arguments = (version, data, _milliseconds(ttl_seconds) or "")
        done = self._client.register_script(_REPLACE)(keys=(self._prefix + name,), args=arguments)
        return _version(data) if done else None

    def lease(self, name: str, duration_seconds: float | None = None) -> RedisLease:
        """A key that expires, and a counter for the tokens."""
        from .lease import DURATION_SECONDS
        from .redis_lease import RedisLease

        seconds = duration_seconds or DURATION_SECONDS
        return RedisLease(self._client, self._prefix + name, self._prefix + "lease-tokens", seconds)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, int(seconds * 1000))


def _version(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
