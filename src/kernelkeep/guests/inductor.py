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
from .inductor_key import parts_of_all_graphs, parts_of_graph, watch

_MODULE = "torch._inductor.remote_cache"
# Compiled once for many: who asks for one of these waits for the process that compiles it. The others are asked for by the way.
_WAITED_FOR = ("RemoteFxGraphCache", "RemoteAOTAutogradCache")
_CACHES = (*_WAITED_FOR, "RemoteAutotuneCache", "RemoteBundledAutotuneCache", "RemoteDynamoPGOCache")
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


class KernelkeepBackend(_Base):  # type: ignore[misc, valid-type]
    """Gets and puts the bytes of one of the compiler's caches."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind
        self._waits = kind in _WAITED_FOR

    def _key(self, key: str) -> Key:
        return guest_cache("inductor").key({"kind": self._kind, "key": key})

    def _get(self, key: str) -> bytes | None:
        made = self._key(key)
        return (
            guest_cache("inductor").get(made, self._kind)
            if self._waits
            else guest_cache("inductor").find(made, self._kind)
        )

    def _put(self, key: str, data: bytes) -> None:
        about = {"torch": str(torch.__version__), **self._parts_of(key)}
        guest_cache("inductor").put(self._key(key), self._kind, bytes(data), about)

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
    for name, cache in caches.items():
        cache.backend_override_cls = functools.partial(KernelkeepBackend, name)
    for module, name, value in settings:
        setattr(module, name, value)
    watch()
    if not local:
        inductor: Any = __import__("torch._inductor.config", fromlist=["_"])
        functorch: Any = __import__("torch._functorch.config", fromlist=["_"])
        inductor.fx_graph_cache = False
        functorch.enable_autograd_cache = False
