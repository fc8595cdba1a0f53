"""CuPy's compiled kernels in our cache, from `kernelkeep.guests.cupy.turn_on()` on."""

from __future__ import annotations

import re
import threading
from typing import Any

import cupy

from ..cache.key import Key
from .guest_cache import guest_cache
from .hooks import Hook

_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)")


def _find_base(hook: Hook) -> Any:
    methods = {"load": ("name",), "save": ("name", "cubin", "source")}
    return hook.find_class("cupy.cuda._compiler_cache", "KernelCacheBackend", methods)


_Base = _find_base(Hook("CuPy"))


class _Backend(_Base):  # type: ignore[misc, valid-type]
    """Loads and saves the bytes of CuPy's kernels."""

    def __init__(self) -> None:
        self._cache = guest_cache("cupy")
        self._turn = threading.local()

    def _key(self, name: str) -> Key:
        return self._cache.key({"name": name})

    def load(self, name: str) -> bytes | None:
        last = getattr(self._turn, "key", None)
        if last is not None:  # it did not compile
            self._cache.give_up(last)
        key = self._key(name)
        found = self._cache.get(key, "kernel")
        self._turn.key = key if found is None else None
        return found

    def save(self, name: str, cubin: bytes, source: str) -> None:
        kernel = _KERNEL.search(source)
        about = {"cupy": str(cupy.__version__), "kernel": kernel.group(1) if kernel else ""}
        self._cache.put(self._key(name), "kernel", cubin, about)
        self._turn.key = None


def turn_on() -> None:
    """Use our cache in place of CuPy's folder. `Unsupported` where CuPy has no such place."""
    hook = Hook("CuPy")
    _find_base(hook)
    change = hook.find("cupy.cuda.compiler", "_set_kernel_cache_backend")
    if change is not None:
        hook.takes(change, "_set_kernel_cache_backend", ("backend",))
    hook.check()
    change(_Backend())
