"""The usual launch of a kernel with the module in C, which checks and packs the arguments and calls the driver."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from functools import cache, lru_cache, partial
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


_REFUSED = object()


def native_launcher(kernel: CudaKernel, slow: Launcher) -> Launcher | None:
    """`slow` for the usual arguments; None where the module was not built, or a parameter is of a kind that it cannot pack."""
    if isinstance(slow, MethodType):  # not made yet; once it is, it holds the library itself
        slow = partial(_call, kernel.program.hold(), slow)
    return _new_launch(kernel, lambda: kernel.program.load_kernel(kernel.cu_kernel, kernel.name), slow)


def first_launch(kernel: CudaKernel, args: tuple[Any, ...], shape: Any) -> bool:
    """Launch a kernel whose code may not be on the device yet; False if that was not done, and the usual way is to be taken.

    The driver loads the code as a part of the launch, which takes less time than to ask it for the function before.
    """
    _held = kernel.program.hold()
    launch, discarded = _new_launch(kernel, lambda: kernel.cu_kernel, _refuse), kernel.device.discarded
    if launch is None or not discarded.begin():  # loading code waits for every running kernel
        return False
    try:
        return launch(args, shape) is not _REFUSED
    finally:
        discarded.end()


def _refuse(args: tuple[Any, ...], shape: Any) -> object:
    """In place of the slow launch, which nobody has made yet."""
    return _REFUSED


def _new_launch(kernel: CudaKernel, find: Callable[[], Any], slow: Launcher) -> Launcher | None:
    """A launch in C of what `find` returns, a function or the kernel itself; None, and nothing is found, where that cannot be."""
    native, layout = _native(), _layout(kernel.params)
    if native is None or layout is None:
        return None
    checked_launch, address = native
    device = kernel.device
    made: Launcher = checked_launch(address, int(find()), int(device.cu_stream), *layout, Array, device, slow)
    return made


def _native() -> tuple[Any, int] | None:
    addresses = launch_addresses()
    if addresses is None or _FREE_THREADED:
        return None
    return _checked_launch(), addresses["cuLaunchKernel"]


@cache
def _checked_launch() -> Any:
    from ..._native import CheckedLaunch

    return CheckedLaunch


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
