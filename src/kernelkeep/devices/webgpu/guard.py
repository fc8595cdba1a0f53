"""Calls of functions that end the process when the device is lost (`_guard.c`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .native import native
from .types import address_of


@cache
def _guarded(name: str) -> tuple[Callable[[int, int, int, int], bool], int] | None:
    try:
        from ..._guard import call
    except ImportError:
        return None
    ffi, lib = native()
    return call, address_of(ffi.addressof(lib, name))


def call_guarded(name: str, *arguments: Any) -> bool:
    """Call a function that ends the process when the device is lost; False instead, where the C module is built."""
    lib = native().lib
    guarded = _guarded(name)
    if guarded is None:
        getattr(lib, name)(*arguments)
        return True
    call, address = guarded
    a, b, c = (address_of(one) for one in arguments)
    return call(address, a, b, c)
