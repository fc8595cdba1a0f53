"""A lane of the ring as the host sees it, in C where that was built: records go in, results come out.

    lane = open_lane(layout, 0, buffer, TaskFuture)
    future = lane.push(plan, (1.5, 3))          # None: the ring is full
    future.result()

Futures are derived from `future_type()`: a type in C (`kernelkeep._ring`), or where that was not built its twin from
`python_lane`. `protocol` tells the rules that both keep.
"""

from __future__ import annotations

import functools
import platform
import sys
from typing import Any

from ..errors import Unsupported
from ..settings import native
from .protocol import Layout
from .python_lane import PythonFuture, PythonLane


@functools.cache
def future_type() -> Any:
    """The type that futures are derived from: in C where that was built and may be used, else `PythonFuture`."""
    if native():
        try:
            from .._ring import Future
        except ImportError:  # not built here
            pass
        else:
            return Future
    return PythonFuture


def open_lane(
    layout: Layout, lane: int, buffer: Any, future: Any, *, context: object = None, emulated: bool = False
) -> Any:
    """A lane of the ring in `buffer`, in C where the type `future` is. `emulated`: the device is threads in this process."""
    layout.attach(buffer)
    cls: Any
    if issubclass(future, PythonFuture):
        require_order(emulated)
        cls = PythonLane
    else:
        from .._ring import Lane as cls
    opened = cls(buffer, *layout.lane_offsets(lane), layout.slot, layout.capacity, future)
    opened.context = context
    if emulated:
        opened.held_ns = 0  # the device cannot go on while this thread has the interpreter's lock
    return opened


def require_order(emulated: bool) -> None:
    """Refuse a machine on which Python cannot keep the order: it has no barriers, which only x86 does not need.

    An emulated device is fine everywhere, because the interpreter's lock is a barrier between its threads and ours.
    """
    if sys.byteorder != "little":
        raise Unsupported("resident kernels", "the ring needs a little-endian machine")
    if not emulated and platform.machine().lower() not in ("x86_64", "amd64"):
        raise Unsupported(
            "resident kernels without kernelkeep._ring",
            f"on {platform.machine()} the ring needs memory barriers, which only kernelkeep._ring has, and that was not "
            "built here; reinstall kernelkeep with a C compiler",
        )
