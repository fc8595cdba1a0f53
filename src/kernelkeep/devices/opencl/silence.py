"""Keeps pyopencl from calling the driver in a forked child.

Every object of pyopencl releases its OpenCL object when it is collected, and some wait for the device first. In a forked
child that could block for ever (`devices/forks.py`), also at the end of the process. OpenCL finds a driver's functions
through a table that each of its objects points to, and the child has its own copy of that table: there, the functions that
release or wait are replaced by one that does nothing and reports success.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import partial
from typing import Any

from ...platforms import system
from .. import forks

# Places in the table, which are fixed (cl_icd.h of the Khronos group).
_RELEASES = (7, 11, 18, 24, 29, 37, 44, 95)  # context, queue, memory, sampler, program, kernel, event, device
_WAITS = (41, 46, 47, 58)  # wait for events, flush, finish, unmap
_READ_AND_WRITE = 3  # PROT_READ | PROT_WRITE

_silenced: set[int] = set()  # tables that `_silence` is registered for


def silence_in_forked_child(platform: Any) -> None:
    """Keep collected objects of this driver from calling it in children forked from now on."""
    if not system.HAS_FORKS or "cl_khr_icd" not in platform.extensions:  # without it there is no such table
        return
    table = ctypes.c_void_p.from_address(platform.int_ptr).value
    c = ctypes.CDLL(None)
    nothing = ctypes.cast(c.sched_yield, ctypes.c_void_p).value  # takes no arguments and returns 0, CL_SUCCESS
    if table and nothing and table not in _silenced:
        _silenced.add(table)
        forks.keep_driver_quiet(partial(_silence, table, nothing, c.mprotect))


def _silence(table: int, nothing: int, protect: Any) -> None:
    size = ctypes.sizeof(ctypes.c_void_p)
    places = _RELEASES + _WAITS
    start = table - table % mmap.PAGESIZE
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    # Some drivers keep the table in memory that is read-only once they are loaded.
    if protect(start, table + (max(places) + 1) * size - start, _READ_AND_WRITE) == 0:
        for place in places:
            ctypes.c_void_p.from_address(table + place * size).value = nothing
