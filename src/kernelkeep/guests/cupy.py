"""CuPy's compiled kernels in our cache, from `kernelkeep.guests.cupy.turn_on()` on."""

from __future__ import annotations

import re
import threading
from typing import Any

import cupy
from cupy.cuda import compiler

from ..cache.key import Key
from ..errors import Unsupported
from .guest_cache import guest_cache

TRIED = "14.2"
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)")


class _Backend:
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
    module: Any = compiler
    change = getattr(module, "_set_kernel_cache_backend", None)
    if change is None:
        raise Unsupported(
            "CuPy's kernels in this cache", f"CuPy {cupy.__version__} cannot change its cache; versions {TRIED} can"
        )
    change(_Backend())
