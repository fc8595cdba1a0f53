"""PyOpenCL's programs in our cache: `build(context, source)` in place of `pyopencl.Program(context, source).build()`.

PoCL finishes compiling at the first launch of each group size, and such a binary is worth more after use. So what was compiled in
this process is saved again at its end, or when `ripen` is called.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import shlex
import threading
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple

import pyopencl as cl

from ..cache.key import Key
from ..devices.opencl.pocl import finish_binary, is_pocl
from ..platforms import system
from ..storage.files import Damaged
from .files import pack, unpack
from .guest_cache import GuestCache, guest_cache
from .hooks import Hook
from .pyopencl_key import devices_of, headers_of, options_of

_NO_CACHE: Any = False  # of PyOpenCL's own: what is compiled is kept here
_lock = threading.Lock()


class _Compiled(NamedTuple):
    program: weakref.ref[Any]
    context: Any
    source: str
    options: list[str]
    headers: dict[str, str]
    key: Key
    name: str


_compiled: list[_Compiled] = []


def build(context: Any, source: str, options: str | Iterable[str] = (), name: str = "program") -> Any:
    """A built `pyopencl.Program` for all devices of a context, from the cache or compiled. `name` is what listings show.

    A header that the source includes is part of the key, by its contents. A program that includes one which is not found here,
    but perhaps by the driver, is compiled each time. `Unsupported` where this version of PyOpenCL builds programs in another way.
    """
    check()
    given = shlex.split(options) if isinstance(options, str) else list(options)
    headers = headers_of(context, source, given)
    if headers is None:
        return cl.Program(context, source).build(given, cache_dir=_NO_CACHE)
    cache = guest_cache("pyopencl")
    key = cache.key({"source": source, "options": options_of(given), **headers, **devices_of(context)})
    found = cache.get(key, name)
    if found is not None:
        program = _load(context, found, given, cache, key, name)
        if program is not None:
            return program
    try:
        program = cl.Program(context, source).build(given, cache_dir=_NO_CACHE)
        made = _Compiled(weakref.ref(program), context, source, given, headers, key, name)
        _save(cache, made, program)
    finally:
        cache.give_up(key)
    with _lock:
        _compiled.append(made)
    return program


@functools.cache
def check() -> None:
    """`Unsupported` where this version of PyOpenCL does not have what is used here. Looks once."""
    hook = Hook("PyOpenCL")
    hook.takes(cl.Program.build, "Program.build", ("options", "cache_dir"), first=False)
    hook.takes(cl.Program._process_build_options, "Program._process_build_options", ("context", "options"))
    hook.has(cl.program_info, "BINARIES")
    hook.check()


def _load(context: Any, data: bytes, options: list[str], cache: GuestCache, key: Key, name: str) -> Any:
    try:
        binaries = [bytes(binary) for binary in unpack(data).values()]
        return cl.Program(context, context.devices, binaries).build(options)
    except (Damaged, cl.Error, ValueError) as error:
        cache.reject(key, name, str(error))
        return None


def _save(cache: GuestCache, made: _Compiled, program: Any) -> None:
    if headers_of(made.context, made.source, made.options) != made.headers:
        return  # one was changed meanwhile, and nobody knows which of both was compiled
    if is_pocl(made.context.devices[0].platform):
        finish_binary(cl, program)
    binaries = program.get_info(cl.program_info.BINARIES)
    cache.put(made.key, made.name, pack({str(number): bytes(one) for number, one in enumerate(binaries)}))


def was_compiled(program: Any) -> bool:
    """Whether a program that `build` returned was compiled by this process."""
    with _lock:
        return any(one.program() is program for one in _compiled)


def ripen() -> int:
    """Save what was compiled in this process again, with the native code that launches added since; how many programs."""
    with _lock:
        waiting, _compiled[:] = list(_compiled), []
    saved = 0
    for one in waiting:
        if not is_pocl(one.context.devices[0].platform):
            continue  # other drivers compile everything at once
        with contextlib.suppress(cl.Error):
            again = cl.Program(one.context, one.source).build(one.options, cache_dir=_NO_CACHE)
            _save(guest_cache("pyopencl"), one, again)
            saved += 1
    return saved


@atexit.register
def _ripen_at_exit() -> None:
    with contextlib.suppress(Exception):
        ripen()


def _in_child() -> None:
    """What was compiled is the parent's to save, and no OpenCL driver survives a fork."""
    global _lock
    _lock = threading.Lock()
    _compiled.clear()


system.on_fork(after_in_child=_in_child)
