"""A list of launches and copies that is given to the device as one.

`Replay` works on any device: a loop over launches that were checked when they were prepared. A driver that can take such a
list whole (CUDA graphs, OpenCL command buffers) replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .array import Array
from .prepared import Prepared

if TYPE_CHECKING:
    from .base import Device


class Copy(NamedTuple):
    """A copy between two arrays of one size; a NumPy array is host memory, read or written at each replay."""

    target: Array | np.ndarray[Any, Any]
    origin: Array | np.ndarray[Any, Any]


Step = Prepared | Copy


class Replay:
    """Steps in order, on the device's own queue."""

    def __init__(self, device: Device, steps: Sequence[Step]) -> None:
        self.device = device
        self.calls: list[Callable[[], Any]] = [
            _copier(device, step) if isinstance(step, Copy) else step.on_device_queue() for step in steps
        ]

    def launch(self) -> None:
        """Enqueue all steps; returns at once."""
        for call in self.calls:
            call()

    def refresh(self, prepared: Prepared) -> bool:
        """Take over the changed arguments of a launch. False: this replay cannot, and is to be made anew."""
        return True  # the launch itself is in the loop

    def close(self) -> None:
        """Give the driver back what it holds."""


def _copier(device: Device, copy: Copy) -> Callable[[], None]:
    target, origin = copy
    if isinstance(target, np.ndarray):
        assert isinstance(origin, Array)
        return lambda: device.download(origin.open_handle(), target)
    if isinstance(origin, np.ndarray):
        return lambda: device.upload(target.open_handle(), origin)
    return lambda: device.copy(target.open_handle(), origin.open_handle(), target.nbytes)
