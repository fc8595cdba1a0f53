"""Calls of functions that end the process when the device is lost (`_guard.c`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from .native import native
from .types import address_of, cast


@cache
def guarded(name: str) -> Callable[[int, int, int], bool]:
    """A function that takes three numbers or addresses, and says False where it would end the process.

    Where the module in C is not built, it ends the process.
    """
    ffi, lib = native()
    try:
        from ..._guard import call
    except ImportError:
        function = getattr(lib, name)
        kinds = [kind.cname for kind in ffi.typeof(function).args]

        def call_plainly(*arguments: int) -> bool:
            function(
                *(
                    cast("void *", one) if kind.endswith("*") else one
                    for kind, one in zip(kinds, arguments, strict=True)
                )
            )
            return True

        return call_plainly
    address = address_of(ffi.addressof(lib, name))
    return lambda a, b, c: call(address, a, b, c)
