"""Waiting for work and timing it: Fence, Timer, Queue.

The classes here work on any device, by `device.synchronize()` and the host's clock. A backend whose driver has events
replaces them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from ..errors import DeviceError

if TYPE_CHECKING:
    from .base import Device

_POLL_SECONDS = 20e-6


class Fence(ABC):
    """A point in a queue's work."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether everything before this point is finished. Never waits."""

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until it is finished; False if the timeout passed first."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while not self.done:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True


class PassedFence(Fence):
    """A fence for a device without events: the work before it is waited for when the fence is made."""

    def __init__(self, device: Device) -> None:
        device.synchronize()
        self._device = device

    @property
    def done(self) -> bool:
        self._device.check_not_lost()
        return True


class Timer:
    """Measures the device time of the work inside a `with` block.

    By default it waits for the device before and after the block and reads the host's clock. A backend whose driver has
    timestamps overrides `start`, `stop` and `read`, and leaves out the host's overhead.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self._ended = False
        self._seconds = 0.0

    def start(self) -> None:
        """The block begins."""
        self.device.synchronize()
        self._seconds = -time.perf_counter()

    def stop(self) -> None:
        """The block ends; its work may still run."""
        self.device.synchronize()
        self._seconds += time.perf_counter()

    def read(self) -> float:
        """The seconds between `start` and `stop`, once the work is done."""
        return self._seconds

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self._ended = True

    @property
    def seconds(self) -> float:
        """The measured time; waits for the block's work."""
        if not self._ended:
            raise DeviceError("the timer's block has not ended")
        return self.read()


class Queue(ABC):
    """A second order of work beside the device's own. Work in different queues may overlap."""

    def __init__(self, device: Device) -> None:
        self.device = device

    @abstractmethod
    def fence(self) -> Fence:
        """A point after all work given to this queue so far."""

    @abstractmethod
    def wait_for(self, fence: Fence) -> None:
        """Work given to this queue from now on starts after `fence`; the host does not wait."""

    def synchronize(self) -> None:
        """Wait until this queue is empty."""
        self.fence().wait()
