"""What a fleet did: for each part its result, or one sentence why it failed."""

from __future__ import annotations

from typing import Any

import msgspec

from ..escaping import escaped
from .parts import PartStatus, State


class FleetPart(msgspec.Struct, frozen=True):
    """One part: its name, its result or its error, where it was done, and how many workers died over it."""

    name: str
    ok: bool
    result: Any
    error: str
    where: str
    losses: int
    seconds: float


class FleetReport(msgspec.Struct, frozen=True):
    """What a fleet did. `ok` where every part is done; `str()` is what a person reads."""

    title: str
    workers: str  # who they were
    parts: tuple[FleetPart, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether no part failed."""
        return all(part.ok for part in self.parts)

    @property
    def failed(self) -> tuple[FleetPart, ...]:
        """The parts that failed for good."""
        return tuple(part for part in self.parts if not part.ok)

    @property
    def losses(self) -> int:
        """How many workers died."""
        return sum(part.losses for part in self.parts)

    def __str__(self) -> str:
        done = len(self.parts) - len(self.failed)
        text = f"{self.title}: {done} of {len(self.parts)} done by {self.workers} in {self.seconds:.1f} s"
        if self.losses:
            text += f"; {self.losses} worker{'' if self.losses == 1 else 's'} lost, and the work done again"
        return "\n".join([text, *(f"failed: {escaped(part.name)}: {escaped(part.error)}" for part in self.failed)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from .html import fleet_html

        return fleet_html(self)


def report_of(title: str, workers: str, statuses: list[PartStatus], seconds: float) -> FleetReport:
    """The report of work that is over."""
    parts = tuple(
        FleetPart(
            status.part.name,
            status.state is State.DONE,
            status.result,
            status.error,
            status.where,
            status.losses,
            status.seconds,
        )
        for status in statuses
    )
    return FleetReport(title, workers, parts, seconds)
