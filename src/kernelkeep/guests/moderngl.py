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
from .key import KeyStart


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
    driver = _drivers.get(context)
    if driver is None:
        check()
        driver = _drivers[context] = _Driver(context)
    known = driver.known.get(name)
    if known is None:
        known = driver.known[name] = driver.cache.known(name)
    if driver.start.digest("source", source) in known:
        driver.cache.count_hit(0.0)
        return context.compute_shader(source)
    return _compiled(context, source, name, driver)


class _Driver:
    """What a context says of its driver, asked once: moderngl asks the driver ninety questions for it.

    And the shaders that were known when a name was first used: looking for the file of each would take a twentieth of its hit.
    One whose entry has been removed since is compiled by the driver, which is right without us, too.
    """

    def __init__(self, context: Any) -> None:
        info = context.info
        said = ", ".join(str(info.get(part, "")) for part in ("GL_VENDOR", "GL_RENDERER", "GL_VERSION"))
        self.cache = guest_cache("moderngl")
        self.fields = {"driver": said}
        self.start = KeyStart("moderngl", self.fields)
        self.known: dict[str, set[str]] = {}  # by the name of shaders


_drivers: weakref.WeakKeyDictionary[Any, _Driver] = weakref.WeakKeyDictionary()


def _compiled(context: Any, source: str, name: str, driver: _Driver) -> Any:
    cache = driver.cache
    key = cache.key({**driver.fields, "source": source})
    stored = cache.has(key, name)
    if stored:
        shader = context.compute_shader(source)
    else:
        try:
            stored = cache.get(key, name) is not None
            shader = context.compute_shader(source)
            # What is put says that the driver's cache has it; the code is there.
            stored = stored or cache.put(key, name, source.encode())
        finally:
            cache.give_up(key)
    if stored:
        driver.known[name].add(key.digest)
    return shader


@functools.cache
def check() -> None:
    """`Unsupported` where this version of moderngl does not have what is used here. Looks once."""
    hook = Hook("moderngl")
    context = hook.find("moderngl", "Context")
    if context is not None:
        hook.takes(getattr(context, "compute_shader", None), "Context.compute_shader", ("self", "source"))
        hook.has(context, "info")
    hook.check()
