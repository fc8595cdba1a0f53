"""What notebooks show of a fleet's work: its parts, who did them, and what failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..html.card import badge, card
from ..html.numbers import seconds
from ..html.table import Cell, table

if TYPE_CHECKING:
    from .report import FleetReport

_MOST_ROWS = 200


def fleet_html(report: FleetReport) -> str:
    """A table of the parts, those that failed first."""
    done = len(report.parts) - len(report.failed)
    about = f"{done} of {len(report.parts)} done by {report.workers} in {seconds(report.seconds)}"
    if report.losses:
        about += f", {report.losses} worker{'' if report.losses == 1 else 's'} lost and the work done again"
    parts = sorted(report.parts, key=lambda part: part.ok)
    rows = [
        (
            part.name,
            badge("done", "accent") if part.ok else badge("failed", "bad"),
            part.where,
            Cell(seconds(part.seconds), part.seconds),
            part.error if not part.ok else "",
        )
        for part in parts[:_MOST_ROWS]
    ]
    return card(report.title, about, table(("part", "", "where", "time", "why"), rows, name="parts"))
