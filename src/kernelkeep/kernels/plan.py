"""A call whose arrays are bound: everything is checked and chosen once, and a call is a prepared launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ..errors import ArgumentError
from .operands import FLOAT, to_device

if TYPE_CHECKING:
    from ..cache.lease import Lease
    from ..cache.program_cache import ProgramCache
    from ..devices.array import Array
    from ..devices.base import Device
    from ..devices.prepared import Prepared
    from ..variants.call import Call
    from ..variants.select import Selection


class Plan:
    """`gemm` or `conv2d` of arrays that stay where they are. Calling it computes the result anew and returns `out`.

    `launch` is the prepared launch itself, for a `kk.Graph` or a loop; `selection` says which variant runs, and why. The
    variant stays, also when others are measured later. The plan keeps its arrays and its program until it is closed, with the
    cache at the latest; a context manager.
    """

    __slots__ = ("__weakref__", "_lease", "launch", "out", "selection")

    def __init__(self, cache: ProgramCache, call: Call, arguments: dict[str, Any], out: Array) -> None:
        self.out = out
        self.selection: Selection = call.selection
        chosen = call.launch
        args, _ = call.arguments(arguments)
        self._lease: Lease | None = cache.get(chosen.source)
        kernel = self._lease.kernel(chosen.kernel)
        self.launch: Prepared = kernel.prepare(chosen.grid, args, chosen.group, shared_bytes=chosen.shared_bytes)
        cache.add_tenant(self)

    def __call__(self) -> Array:
        """Launch; returns `out` at once."""
        self.launch()
        return self.out

    def close(self) -> None:
        """Give the program back. Calling the plan afterwards is a `DeviceError`."""
        lease, self._lease = self._lease, None
        if lease is not None:
            self.launch.revoke("its plan is closed")
            lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The collector may run while this thread holds one of the cache's locks, so take none here.
        lease = getattr(self, "_lease", None)
        if lease is not None and lease.held is not None:
            held, lease.held = lease.held, None
            held.end()

    def __repr__(self) -> str:
        state = "closed" if self._lease is None else str(self.selection.variant)
        return f"<Plan of {self.launch.kernel.name}, {state}>"


def bound_operand(
    device: Device, value: Any, name: str, dimensions: int, dtype: np.dtype[Any] = FLOAT, says: str = "float32"
) -> Array:
    """An operand of a plan: in the device's memory, because a plan reads it again at every call."""
    if isinstance(value, np.ndarray):
        raise ArgumentError(
            f"{name} of a plan must be in the device's memory, got a NumPy array: pass device.array({name})"
        )
    array = to_device(device, value, name, dimensions, dtype, says)
    if hasattr(value, "handle") and array is not value:
        raise ArgumentError(f"{name} of a plan begins at an address that is no multiple of 16 bytes")
    return array
