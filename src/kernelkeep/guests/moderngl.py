"""moderngl's compute shaders: the driver's own cache in our cache folder, and each shader compiled once for many processes.

moderngl has no way to load a compiled shader, and the driver keeps native code in a cache of its own. `turn_on` puts that cache
into our folder, where it is counted, bounded and pruned with the rest; the driver checks what it finds there.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

from ..devices.driver_cache import set_folder
from ..storage.foreign_folder import FOREIGN
from ..storage.private import make_private_tree
from .guest_cache import guest_cache
from .hooks import Hook


def turn_on() -> None:
    """Have the driver keep its shaders in our cache folder. Before the first context: `ArgumentError` if that is too late.

    Where our folder cannot be used, which is a `CacheWarning`, the driver goes on with its own. `Unsupported` where this version
    of moderngl has no compute shaders.
    """
    check()
    folder = guest_cache("moderngl").disk.folder.path / FOREIGN
    try:
        make_private_tree(folder)
    except OSError:  # said when the cache was opened
        return
    set_folder(folder)


def compute_shader(context: Any, source: str, name: str = "shader") -> Any:
    """`context.compute_shader(source)`; while another process compiles the same one, it waits for it. `name` is for listings."""
    check()
    cache = guest_cache("moderngl")
    key = cache.key({"source": source, "driver": _driver_of(context)})
    if cache.has(key, name):
        return context.compute_shader(source)
    known = cache.get(key, name) is not None
    try:
        shader = context.compute_shader(source)
        if not known:
            cache.put(key, name, source.encode())  # that the driver's cache has it; the code is there
    finally:
        cache.give_up(key)
    return shader


_drivers: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def _driver_of(context: Any) -> str:
    """What a context says of its driver, asked once: moderngl asks the driver ninety questions for it."""
    found = _drivers.get(context)
    if found is None:
        info = context.info
        found = ", ".join(str(info.get(part, "")) for part in ("GL_VENDOR", "GL_RENDERER", "GL_VERSION"))
        _drivers[context] = found
    return found


@functools.cache
def check() -> None:
    """`Unsupported` where this version of moderngl does not have what is used here. Looks once."""
    hook = Hook("moderngl")
    context = hook.find("moderngl", "Context")
    if context is not None:
        hook.takes(getattr(context, "compute_shader", None), "Context.compute_shader", ("self", "source"))
        hook.has(context, "info")
    hook.check()
