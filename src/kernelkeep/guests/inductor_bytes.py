"""The bytes of a graph as they are, where PyTorch puts base64 and JSON around what goes to a remote cache.

PyTorch hands over `{"data": <base64>, …}` as JSON, and decodes both at every hit, which takes longer than unpickling the graph.
An entry holds the bytes themselves, behind the rest of the JSON and its length. To hand them back, the two places where PyTorch
decodes are taught to let pass what is decoded already. Whether it does is tried with a value when the cache is turned on; a
version that decodes elsewhere gets JSON again.
"""

from __future__ import annotations

import base64
import functools
import struct
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import msgspec
from torch._inductor import codecache

_SIZE = struct.Struct("<I")
_TRUE = b"\x88."  # pickled


class AsIs(bytes):
    """Stands for decoded bytes. It is empty: whoever decodes it in another place gets nothing, and no wrong bytes."""

    content: bytes


def as_is(content: bytes) -> AsIs:
    """What the door lets pass."""
    made = AsIs()
    made.content = content
    return made


def pack(data: bytes) -> bytes:
    """An entry's bytes, from the JSON that PyTorch puts. What is no such JSON is kept as it is, with nothing before it."""
    try:
        said = msgspec.json.decode(data)
        content = base64.b64decode(said.pop("data"), validate=True)
        rest = msgspec.json.encode(said)
    except (ValueError, TypeError, AttributeError, KeyError):
        rest, content = b"", data
    return _SIZE.pack(len(rest)) + rest + content


def unpack(packed: bytes | memoryview, *, door: bool) -> dict[str, Any] | bytes:
    """What PyTorch's cache decodes: JSON, or where the door is open what the JSON says."""
    (size,) = _SIZE.unpack_from(packed)
    start = _SIZE.size + size
    content = bytes(packed[start:])
    if not size:
        return content
    said: dict[str, Any] = msgspec.json.decode(packed[_SIZE.size : start])
    if door:
        return {**said, "data": as_is(content)}
    return msgspec.json.encode({**said, "data": base64.b64encode(content).decode()})


class _Base64:
    """The module `base64`, as PyTorch's lookup of graphs sees it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(base64, name)

    @staticmethod
    def b64decode(data: Any, *args: Any, **options: Any) -> bytes:
        return data.content if type(data) is AsIs else base64.b64decode(data, *args, **options)


_taught: set[type] = set()


def open_door(caches: list[Any]) -> bool:
    """Have PyTorch take graphs as they are from these classes; False, and nothing is changed, where it does not."""
    with ExitStack() as undo:
        before = getattr(codecache, "base64", None)
        if type(before) is not _Base64:
            if before is not base64:
                return False
            codecache.base64 = _Base64()
            undo.callback(setattr, codecache, "base64", before)
        for cache in caches:
            if cache not in _taught:
                decode = getattr(cache, "_decode", None)
                if not callable(decode):
                    return False
                cache._decode = _unless_decoded(decode)
                undo.callback(setattr, cache, "_decode", decode)
        if not all(map(_passes, caches)):
            return False
        _taught.update(caches)
        undo.pop_all()
        return True


def _unless_decoded(decode: Any) -> Any:
    @functools.wraps(decode)
    def decoded(self: Any, data: Any, *args: Any) -> Any:
        return data if type(data) is dict else decode(self, data, *args)

    return decoded


def _passes(cache: Any) -> bool:
    """Whether PyTorch's lookup in such a cache, whose backend gives a value that is decoded, unpickles just that."""

    class Decoded:
        def get(self, key: str) -> dict[str, Any]:
            return {"data": as_is(_TRUE)}

    class Remote(cache):  # type: ignore[misc]
        backend_override_cls = Decoded

        def get(self, key: str) -> Any:
            return self._get(key, None)  # PyTorch's own `get` would count this in its statistics

    log = getattr(codecache, "log", None) or SimpleNamespace(disabled=False)
    was, log.disabled = log.disabled, True  # it logs what it cannot take
    try:
        remote = Remote("trial")
        remote.serde = None  # what decodes in another place than `_decode` fails
        return list(codecache.GuardedCache.iterate_over_candidates(False, remote, "")) == [(True, _TRUE, False)]
    except Exception:
        return False
    finally:
        log.disabled = was
