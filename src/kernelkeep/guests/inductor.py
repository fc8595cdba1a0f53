"""torch.compile's results in our cache: `import kernelkeep.guests.inductor; kernelkeep.guests.inductor.turn_on()`.

PyTorch's compiler has caches for graphs, for autograd's graphs and for tuning, each with a backend that gets and puts bytes, and
unpickles what it gets. Here those bytes are entries of ours: nothing is unpickled that was not verified.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..cache.key import Key
from .guest_cache import guest_cache
from .hooks import Hook
from .inductor_bytes import open_door, pack, unpack
from .inductor_key import parts_of_all_graphs, parts_of_graph, watch
from .kept_bytes import KeptBytes

_MODULE = "torch._inductor.remote_cache"
# Graphs are compiled once for many: who asks for one waits for the process that compiles it. The others are asked for by the way.
_GRAPHS = ("RemoteFxGraphCache", "RemoteAOTAutogradCache")
_CACHES = (*_GRAPHS, "RemoteAutotuneCache", "RemoteBundledAutotuneCache", "RemoteDynamoPGOCache")
_SETTINGS = (
    ("torch._inductor.config", "fx_graph_remote_cache", True),
    ("torch._functorch.config", "enable_remote_autograd_cache", True),
)
# Where a GPU is tuned for: without one the compiler stops at these.
_SETTINGS_FOR_GPUS = (
    ("torch._inductor.config", "autotune_remote_cache", True),
    ("torch._inductor.config", "bundled_autotune_remote_cache", True),
)


def _find_base(hook: Hook) -> Any:
    return hook.find_class(_MODULE, "RemoteCacheBackend", {"_get": ("key",), "_put": ("key", "data")})


_Base = _find_base(Hook("torch.compile"))


_kept = functools.cache(KeptBytes)


class KernelkeepBackend(_Base):  # type: ignore[misc, valid-type]
    """Gets and puts the bytes of one of the compiler's caches. `door`: whether PyTorch takes graphs as they are."""

    def __init__(self, kind: str, *, door: bool = False) -> None:
        super().__init__()
        self._kind = kind
        self._door = door
        self._is_graph = kind in _GRAPHS

    def _key(self, key: str) -> Key:
        form = {"form": "bytes"} if self._is_graph else {}
        return guest_cache("inductor").key({"kind": self._kind, "key": key, **form})

    def _get(self, key: str) -> Any:
        made, cache = self._key(key), guest_cache("inductor")
        if not self._is_graph:
            return cache.find(made, self._kind)
        kept = _kept(cache)
        copy = kept.find(made, self._kind)
        if copy is not None:
            return unpack(copy, door=self._door)
        found = cache.get(made, self._kind)
        if found is None:
            return None
        kept.keep(made, self._kind)
        return unpack(found, door=self._door)

    def _put(self, key: str, data: bytes) -> None:
        made, cache = self._key(key), guest_cache("inductor")
        about = {"torch": str(torch.__version__), **self._parts_of(key)}
        cache.put(made, self._kind, pack(data) if self._is_graph else bytes(data), about)
        if self._is_graph:
            _kept(cache).keep(made, self._kind)

    def _parts_of(self, key: str) -> dict[str, str]:
        if self._kind == "RemoteFxGraphCache":
            return parts_of_graph(key)
        return parts_of_all_graphs() if self._kind == "RemoteAOTAutogradCache" else {}


def turn_on(*, local: bool = False) -> None:
    """Use our cache for what the compiler keeps. `local` leaves its own folder on, whose files it unpickles unverified.

    `Unsupported` where this version of PyTorch has other doors.
    """
    hook = Hook("torch.compile")
    _find_base(hook)
    caches = {name: hook.find(_MODULE, name) for name in _CACHES}
    for cache in filter(None, caches.values()):
        hook.has(cache, "backend_override_cls")
    wanted = _SETTINGS + (_SETTINGS_FOR_GPUS if torch.cuda.is_available() else ())
    settings = [(__import__(module, fromlist=["_"]), name, value) for module, name, value in wanted]
    for module, name, _ in settings:
        hook.has(module, name)
    hook.check()
    guest_cache("inductor")  # what is wrong with its settings is said here, and not in the middle of a compile
    door = open_door([caches[name] for name in _GRAPHS])
    for name, cache in caches.items():
        cache.backend_override_cls = functools.partial(KernelkeepBackend, name, door=door)
    for module, name, value in settings:
        setattr(module, name, value)
    watch()
    if not local:
        inductor: Any = __import__("torch._inductor.config", fromlist=["_"])
        functorch: Any = __import__("torch._functorch.config", fromlist=["_"])
        inductor.fx_graph_cache = False
        functorch.enable_autograd_cache = False
