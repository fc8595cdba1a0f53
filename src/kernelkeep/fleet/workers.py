"""Who does the parts of a fleet's work: processes of this machine, or the workers of a Ray cluster."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import msgspec

from ..errors import ArgumentError
from .parts import Part, PartFailed, PartLost, Slot

LOCAL = "local"


class Told(msgspec.Struct, frozen=True):
    """A worker says where it is, and what it is doing."""

    token: int
    where: str
    note: str = ""


class Ended(msgspec.Struct, frozen=True):
    """A worker is done with a part: the result, `PartFailed` or `PartLost`."""

    token: int
    outcome: Any | PartFailed | PartLost


class Workers(ABC):
    """Does parts, each in a process of its own. A context manager: at its end nothing of it is left running."""

    @abstractmethod
    def start(self, part: Part) -> int | None:
        """Begin a part: a token that events name; None where there is no room now."""

    @abstractmethod
    def wait(self, seconds: float) -> Sequence[Told | Ended]:
        """What happened; returns early when something did."""

    @abstractmethod
    def interrupt(self) -> None:
        """Ask every worker to stop, as Ctrl-C does; a run makes its last checkpoint then."""

    @abstractmethod
    def close(self) -> None:
        """End every worker."""

    @property
    @abstractmethod
    def description(self) -> str:
        """Who they are, for people."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_workers(
    cluster: str | None, slots: Sequence[Slot], *, each_device: bool = False, device: str | None = None
) -> Workers:
    """Workers for some parts.

    `cluster` is the address of a Ray cluster ("auto" finds one on this machine), or "local"; None takes $RAY_ADDRESS, else the
    cluster that this process is connected to, else this machine alone. `slots` are those of this machine. With `each_device`,
    a cluster does one part at a time on each of its GPUs, or on each machine where it has none.
    """
    if cluster is not None and not isinstance(cluster, str):
        raise ArgumentError(f"cluster must be the address of a Ray cluster, auto or local, got {cluster!r}")
    named = cluster or os.environ.get("RAY_ADDRESS") or None
    if named is None:
        from .ray_workers import connected

        named = "auto" if connected() else LOCAL
    if named == LOCAL:
        from .process_workers import ProcessWorkers

        return ProcessWorkers(slots)
    from .ray_workers import RayWorkers

    return RayWorkers(named, each_device=each_device, device=device)
