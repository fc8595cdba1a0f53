"""The usual launch of a kernel with the module in C, which checks and packs the arguments and calls the driver."""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING

import numpy as np

from ..array import Array
from .native import launch_addresses
from .packing import code_of, layout_of

if TYPE_CHECKING:
    from ..arguments import Launcher
    from .program import CudaKernel

_MOST_PARAMS, _MOST_BYTES = 64, 4096  # that the module in C takes
_CODES = frozenset("QqIiHhBbfd")
_FREE_THREADED = "free-threading" in sys.version  # another thread may change an array while it is looked at in C


def native_launcher(kernel: CudaKernel, slow: Launcher) -> Launcher | None:
    """`slow` for the usual arguments; None where the module was not built, or a parameter is of a kind that it cannot pack."""
    addresses, params = launch_addresses(), kernel.params
    codes, nbytes = "".join(map(code_of, params)), struct.calcsize(layout_of(params))
    if addresses is None or nbytes > _MOST_BYTES or len(params) > _MOST_PARAMS or not _CODES.issuperset(codes):
        return None
    if _FREE_THREADED:
        return None
    from ..._native import CheckedLaunch

    checks: list[object] = []
    for param in params:
        dtype = None if param.dtype is None else np.dtype(param.dtype)
        checks.append(dtype if param.kind == "buffer" or dtype is None else dtype.type)
    function = kernel.program.load_kernel(kernel.cu_kernel, kernel.name)
    return CheckedLaunch(
        addresses["cuLaunchKernel"], int(function), int(kernel.device.cu_stream), codes, tuple(p.slot for p in params), nbytes,
        tuple(checks), Array, kernel.device, slow,
    )  # fmt: skip
