"""What notebooks show of an executor: what ran when on its three lanes, and how busy they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ..html.card import card, section
from ..html.gantt import Row, Span, gantt
from ..html.markup import Markup
from ..html.numbers import milliseconds, seconds, share
from ..html.table import facts
from .timeline import ENGINES

if TYPE_CHECKING:
    from .executor import Executor
    from .timeline import Timeline

_BATCHES = 40
_KINDS = {"upload": "middle", "compute": "accent", "download": "light", "copy": "quiet", "dispatch": "quiet"}
_LABELS = {"copy": "host: copy", "dispatch": "host: dispatch"}


def timeline_html(timeline: Timeline) -> str:
    """The last batches of a timeline."""
    return card("Timeline", _about(timeline), *_parts(timeline))


def executor_html(executor: Executor) -> str:
    """An executor, with the last batches."""
    title = repr(executor).strip("<>")
    try:
        timeline = executor.timeline
    except ArgumentError:
        return card(title, "it keeps no timeline")
    return card(title, _about(timeline), *_parts(timeline))


def _about(timeline: Timeline) -> str:
    batches = {span.batch for span in timeline.spans}
    shown = f", the last {_BATCHES} are shown" if len(batches) > _BATCHES else ""
    return f"{len(batches):,} batch{'' if len(batches) == 1 else 'es'}{shown}" if batches else "no batches yet"


def _parts(timeline: Timeline) -> list[Markup]:
    spans = timeline.spans
    batches = sorted({span.batch for span in spans})[-_BATCHES:]
    if not batches:
        return []
    shown = [span for span in spans if span.batch >= batches[0]]
    origin = min(span.start for span in shown)
    rows = []
    for engine, kind in _KINDS.items():
        drawn = [
            Span(
                (span.start - origin) * 1e3,
                (span.end - origin) * 1e3,
                f"{span.job} {span.batch}: {milliseconds((span.end - span.start) * 1e3)}",
                kind,
            )
            for span in shown
            if span.engine == engine and span.end > span.start
        ]
        rows.append(Row(_LABELS.get(engine, engine), drawn))
    busy = timeline.busy()
    together: list[tuple[str, object]] = [(f"{engine} busy", share(busy[engine])) for engine in ENGINES]
    together.append(("upload beside compute", seconds(timeline.overlap())))
    return [gantt(rows, label="what ran when"), section("of the whole time", facts(together))]
