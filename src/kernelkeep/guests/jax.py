"""JAX's compiled programs in our cache, from `kernelkeep.guests.jax.turn_on()` on.

JAX has one object with `get` and `put` for its persistent cache, and this takes its place. JAX deserialises what `get` returns,
so every byte was verified before.
"""

from __future__ import annotations

import pathlib
import threading
from importlib import import_module
from typing import Any

import jax

from ..cache.key import Key
from .guest_cache import GuestCache
from .hooks import Hook

_SETTINGS = {
    "jax_enable_compilation_cache": True,
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def _find_base(hook: Hook) -> Any:
    methods = {"get": ("key",), "put": ("key", "value")}
    return hook.find_class("jax._src.compilation_cache_interface", "CacheInterface", methods)


_Base = _find_base(Hook("JAX"))


class KernelkeepCache(_Base):  # type: ignore[misc, valid-type]
    """JAX's persistent cache."""

    def __init__(self) -> None:
        self._cache = GuestCache("jax")
        self._path = pathlib.Path(self._cache.disk.location)
        self._turn = threading.local()

    def _key(self, key: str) -> tuple[Key, str]:
        name, _, digest = key.rpartition("-")  # jit_f-<hash>, and "-cache" behind it in some versions
        return self._cache.key({"name": name, "hash": digest}), name or "program"

    def get(self, key: str) -> bytes | None:
        made, name = self._key(key)
        if getattr(self._turn, "key", None) is not None:
            self._end_turn()
        data = self._cache.get(made, name)
        if data is None:
            self._turn.key = made
        return data

    def put(self, key: str, value: bytes) -> None:
        made, name = self._key(key)
        self._cache.put(made, name, value, {"jax": str(jax.__version__), "platform": jax.default_backend()})
        self._turn.key = None

    def _end_turn(self) -> None:
        # JAX does not put what compiled too quickly to be worth it. Who asks for the next program has compiled the last one.
        self._cache.give_up(self._turn.key)
        self._turn.key = None


def turn_on() -> None:
    """Use our cache in place of JAX's persistent cache, for programs of every size. `Unsupported` where JAX has no such place."""
    hook = Hook("JAX")
    _find_base(hook)
    module: Any = import_module("jax._src.compilation_cache")
    hook.has(
        module, "_cache", "_cache_initialized", "reset_cache", "get_executable_and_time", "put_executable_and_time"
    )
    hook.has(jax.config, "jax_compilation_cache_dir", *_SETTINGS)
    hook.check()
    ours = KernelkeepCache()
    for name, value in _SETTINGS.items():
        jax.config.update(name, value)
    jax.config.update("jax_compilation_cache_dir", str(ours._path))
    module.reset_cache()
    module._cache = ours
    module._cache_initialized = True
