"""The usual launch of a kernel with the module in C, which checks and packs the arguments and calls the driver."""

from __future__ import annotations

import struct
import sys
from functools import lru_cache, partial
from types import MethodType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..array import Array
from .native import launch_addresses
from .packing import code_of, layout_of

if TYPE_CHECKING:
    from ...programs.signature import Parameter
    from ..arguments import Launcher
    from .program import CudaKernel

_MOST_PARAMS, _MOST_BYTES = 64, 4096  # that the module in C takes
_CODES = frozenset("QqIiHhBbfd")
_FREE_THREADED = "free-threading" in sys.version  # another thread may change an array while it is looked at in C


def native_launcher(kernel: CudaKernel, slow: Launcher) -> Launcher | None:
    """`slow` for the usual arguments; None where the module was not built, or a parameter is of a kind that it cannot pack."""
    addresses, layout = launch_addresses(), _layout(kernel.params)
    if addresses is None or layout is None or _FREE_THREADED:
        return None
    from ..._native import CheckedLaunch

    if isinstance(slow, MethodType):  # not made yet; once it is, it holds the library itself
        slow = partial(_call, kernel.program.hold(), slow)
    codes, slots, nbytes, checks = layout
    function = kernel.program.load_kernel(kernel.cu_kernel, kernel.name)
    return CheckedLaunch(
        addresses["cuLaunchKernel"], int(function), int(kernel.device.cu_stream), codes, slots, nbytes,
        checks, Array, kernel.device, slow,
    )  # fmt: skip


def _call(library: object, slow: Launcher, args: tuple[Any, ...], shape: Any) -> None:
    """`slow`. Who holds this holds the library: another thread may close the program while the driver is in the launch."""
    slow(args, shape)


@lru_cache(maxsize=256)
def _layout(params: tuple[Parameter, ...]) -> tuple[str, tuple[int, ...], int, tuple[object, ...]] | None:
    """How arguments are packed, and what they are compared with; kernels with the same parameters share it."""
    codes, nbytes = "".join(map(code_of, params)), struct.calcsize(layout_of(params))
    if nbytes > _MOST_BYTES or len(params) > _MOST_PARAMS or not _CODES.issuperset(codes):
        return None
    checks: list[object] = []
    for param in params:
        dtype = None if param.dtype is None else np.dtype(param.dtype)
        checks.append(dtype if param.kind == "buffer" or dtype is None else dtype.type)
    return codes, tuple(p.slot for p in params), nbytes, tuple(checks)
