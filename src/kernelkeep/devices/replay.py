"""A list of launches and copies that is given to the device as one.

A driver that can take such a list whole (CUDA graphs, OpenCL command buffers) is given it once; elsewhere it is a loop over
launches that were checked when they were prepared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .array import Array
from .prepared import Prepared

if TYPE_CHECKING:
    from .base import Device

__all__ = ["Copy", "LoopReplay", "Replay", "Step"]


class Copy(NamedTuple):
    """A copy between two arrays of one size; a NumPy array is host memory, read or written at each replay."""

    target: Array | np.ndarray[Any, Any]
    origin: Array | np.ndarray[Any, Any]


Step = Prepared | Copy


class Replay(ABC):
    """Steps as a driver has them."""

    @abstractmethod
    def launch(self) -> None:
        """Give all steps to the device's own queue, in order; returns at once."""

    def refresh(self, prepared: Prepared) -> bool:
        """Take over the changed arguments of a launch. False: this replay cannot, and is to be made anew."""
        return False

    def close(self) -> None:
        """Give the driver back what it holds."""
        return None


class LoopReplay(Replay):
    """One step after the other."""

    def __init__(self, device: Device, steps: Sequence[Step]) -> None:
        self._device = device
        self._steps = [step._in_order() if isinstance(step, Prepared) else _copier(device, step) for step in steps]

    def launch(self) -> None:
        for step in self._steps:
            step()

    def refresh(self, prepared: Prepared) -> bool:
        return True  # the launch itself is in the loop


def _copier(device: Device, copy: Copy) -> Any:
    target, origin = copy
    if isinstance(target, np.ndarray):
        assert isinstance(origin, Array)
        return lambda: device._download(origin._check_open(), target)
    if isinstance(origin, np.ndarray):
        return lambda: device._upload(target._check_open(), origin)
    return lambda: device._copy(target._check_open(), origin._check_open(), target.nbytes)
