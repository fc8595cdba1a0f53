"""cuda.core's compiled programs in our cache: `program.compile("cubin", cache=KernelkeepProgramCache())`."""

from __future__ import annotations

import os
from typing import Any

from ..cache.key import Key
from .guest_cache import GuestCache
from .hooks import Hook

_NAME = "program"
_METHODS = {
    "__getitem__": ("key",),
    "__setitem__": ("key", "value"),
    "__delitem__": ("key",),
    "__len__": (),
    "clear": (),
}
_hook = Hook("cuda.core")
_Base = _hook.find_class("cuda.core.utils", "ProgramCacheResource", _METHODS)
_ObjectCode = _hook.find("cuda.core", "ObjectCode")


class KernelkeepProgramCache(_Base):  # type: ignore[misc, valid-type]
    """Compiled programs by cuda.core's keys, in the cache folder and in the shared stores that KERNELKEEP_REMOTE names.

    `path` is the cache folder, and `max_size_bytes` bounds all of it; by default as for `kk.ProgramCache`. A lookup that misses
    has the turn to compile: who looks for the same key in another thread or process waits until it is stored. `Unsupported` where
    this version of cuda.core has no such caches.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> None:
        _hook.check()
        if max_size_bytes is not None and max_size_bytes <= 0:
            raise ValueError(f"max_size_bytes must be positive or None, got {max_size_bytes!r}")
        self._cache = GuestCache("cuda.core", path, max_disk_bytes=max_size_bytes)

    def _key(self, key: Any) -> Key:
        if isinstance(key, str):
            key = key.encode()
        if not isinstance(key, bytes | bytearray):
            raise TypeError(f"cache keys must be bytes or str, got {type(key).__name__}")
        return self._cache.key({"key": bytes(key).hex()})

    def __getitem__(self, key: bytes | str) -> bytes:
        found = self._cache.get(self._key(key), _NAME)
        if found is None:
            raise KeyError(key)
        return found

    def __setitem__(self, key: bytes | str, value: Any) -> None:
        self._cache.put(self._key(key), _NAME, _bytes_of(value))

    def __delitem__(self, key: bytes | str) -> None:
        if not self._cache.delete(self._key(key)):
            raise KeyError(key)

    def __len__(self) -> int:
        return len(self._cache)

    def clear(self) -> None:
        self._cache.clear()

    def close(self) -> None:
        self._cache.close()


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, _ObjectCode):
        raise TypeError(f"cache values must be bytes-like or ObjectCode, got {type(value).__name__}")
    code = value.code
    if not isinstance(code, str):
        return bytes(code)
    try:
        with open(code, "rb") as file:  # noqa: PTH123
            return file.read()
    except FileNotFoundError:
        raise FileNotFoundError(f"cannot store path-backed ObjectCode in cache: {code} no longer exists") from None
