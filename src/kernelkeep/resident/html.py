"""What notebooks show of resident grids: their tasks, and what ran when on each block."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..html.card import card, section
from ..html.gantt import Row, Span, gantt
from ..html.markup import element
from ..html.numbers import count, milliseconds, share, size
from ..html.table import facts, table

if TYPE_CHECKING:
    from .resident import Resident
    from .timeline import ResidentTimeline

_BLOCKS, _SPANS = 16, 400  # that are drawn
_KINDS = {"task": "accent", "node": "middle", "graph": "light", "part": "middle"}


def resident_html(resident: Resident) -> str:
    """A resident grid: its tasks, its arrays, and how many tasks its blocks took."""
    if resident.closed:
        return card("Resident", "stopped")
    rows = [
        (number, submitted, submitted - done)
        for number, (submitted, done) in enumerate(zip(resident.submitted, resident.done, strict=True))
    ]
    arrays = [
        (element("code", name), array.dtype.name, " × ".join(map(count, array.shape)), size(array.nbytes))
        for name, array in resident.arrays.items()
    ]
    total = sum(resident.submitted)
    return card(
        repr(resident).strip("<>"),
        f"{count(total)} task{'' if total == 1 else 's'} submitted",
        facts([("now", resident.describe()), ("tasks", element("code", ", ".join(resident.tasks)))]),
        section("arrays", table(("array", "dtype", "shape", "size"), arrays)) if arrays else None,
        section("blocks", table(("block", "submitted", "waiting"), rows[:_BLOCKS])),
    )


def timeline_html(timeline: ResidentTimeline) -> str:
    """What ran when, on the first blocks."""
    spans = [span for span in timeline.spans if span.block < _BLOCKS][-_SPANS:]
    if not spans:
        return card("Resident timeline", "no tasks yet")
    origin = min(span.start for span in spans)
    busy = timeline.busy()
    rows = [
        Row(
            f"block {block}, {share(busy.get(block, 0.0))} busy",
            [
                Span(
                    (span.start - origin) * 1e3,
                    (span.end - origin) * 1e3,
                    f"{span.task} {span.number}: {milliseconds((span.end - span.start) * 1e3)}",
                    _KINDS.get(span.kind, "accent"),
                )
                for span in spans
                if span.block == block
            ],
        )
        for block in sorted({span.block for span in spans})
    ]
    about = f"{len(timeline.spans):,} task{'' if len(timeline.spans) == 1 else 's'}"
    if len(spans) < len(timeline.spans):
        about += f", {len(spans):,} are shown"
    return card("Resident timeline", about, gantt(rows, label="what ran when"))
