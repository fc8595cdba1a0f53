"""Calls of shapes that were seen before: what is left is to look at the arrays, make the result and launch.

A first call finds the problem, the variant and its launch. What it found is kept with the cache, by the shapes and options of
the call. It holds until the records are read again (`Tuned.forget`) or the cache is closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..devices.array import Array
from .operands import ALIGNED

if TYPE_CHECKING:
    from ..cache.program_cache import ProgramCache
    from ..variants.call import Call

_MOST = 4096  # a program whose sizes never repeat must not grow without limit


class ReadyCall:
    """A call with two arrays of known shapes."""

    __slots__ = ("_call", "_device", "_dtype", "_scalars", "_shape")

    def __init__(self, call: Call, arguments: dict[str, Any], result: Array) -> None:
        self._call = call
        self._device = result.device
        self._shape = result.shape
        self._dtype = result.dtype
        args, _ = call.arguments(arguments)
        dtypes = (param.dtype for param in call.parameters[3:])
        # Of the very types that the kernel takes: a launch need not convert them.
        self._scalars = tuple(np.dtype(dtype).type(value) for dtype, value in zip(dtypes, args[3:], strict=True))

    def run(self, cache: ProgramCache, first: Any, second: Any, out: Any) -> Array | None:
        """The result, in `out` if that is given; None where an array is not one that a launch takes as it is, and where another
        variant may be needed now."""
        device, dtype, launch = self._device, self._dtype, self._call.launch
        if launch.shared_bytes and device.runs_resident:
            return None
        if not (
            first.__class__ is Array
            and second.__class__ is Array
            and first.dtype is dtype
            and second.dtype is dtype
            and first.device is device
            and second.device is device
            and device.is_aligned(first, ALIGNED)
            and device.is_aligned(second, ALIGNED)
        ):
            return None
        if out is None:
            result = device.recycled_empty(self._shape, dtype)
        elif (
            out.__class__ is Array
            and out.dtype is dtype
            and out.device is device
            and out.shape == self._shape
            and device.is_aligned(out, ALIGNED)
            and not first.overlaps(out)
            and not second.overlaps(out)
        ):
            result = out
        else:
            return None
        with cache.get(launch.source) as lease:
            kernel, args = lease.kernel(launch.kernel), (first, second, result, *self._scalars)
            kernel.launch(launch.grid, args, launch.group, shared_bytes=launch.shared_bytes)
        return result


def keep_ready(cache: ProgramCache, key: Any, ready: ReadyCall) -> None:
    """Find `ready` under this key from now on, until the records are read again."""
    if len(cache.memo) >= _MOST:
        cache.memo.clear()
    cache.memo[key] = ready
