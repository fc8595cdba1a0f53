"""The order and the time of work: Fence, Timer, Queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

__all__ = ["Fence", "Queue", "Timer"]


class Fence(ABC):
    """A point in a queue's work."""

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether everything before this point is finished. Never waits."""

    @abstractmethod
    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until it is; False if the timeout passed first."""


class Timer(ABC):
    """Measures the device's own time between entering and leaving a `with` block.

    `seconds` waits for the block's work and is what the device's clock says, host overhead left out as far as the
    driver can.
    """

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    @abstractmethod
    def seconds(self) -> float:
        """The measured time."""


class Queue(ABC):
    """A second order of work beside the device's own. Work in different queues may overlap."""

    @abstractmethod
    def fence(self) -> Fence:
        """A point after everything given to this queue so far."""

    @abstractmethod
    def wait_for(self, fence: Fence) -> None:
        """What is given to this queue from now on starts after `fence`; the host does not wait."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until this queue is empty."""
