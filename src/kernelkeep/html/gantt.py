"""What ran when: a row for each lane, and a bar for each piece of work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .axis import Tick, linear_ticks, place
from .charts import x_axis
from .markup import Markup, element
from .numbers import finite, milliseconds

_HEIGHT = 20


@dataclass(frozen=True)
class Span:
    """A piece of work from `start` to `end`, in the unit of the axis. One without a length is drawn as a mark."""

    start: float
    end: float
    title: str = ""
    kind: str = "accent"


@dataclass(frozen=True)
class Row:
    """A lane with its name."""

    label: str
    spans: Sequence[Span]


def gantt(
    rows: Sequence[Row],
    *,
    label: str,
    span: tuple[float, float] | None = None,
    ticks: Sequence[Tick] | None = None,
    write: Callable[[float], str] = milliseconds,
) -> Markup:
    """Rows over a common axis, in milliseconds unless `write` or `ticks` says otherwise."""
    shown = [Row(row.label, [one for one in row.spans if _is_drawn(one)]) for row in rows]
    starts = [one.start for row in shown for one in row.spans]
    low, high = span or (min(starts, default=0.0), max((one.end for row in shown for one in row.spans), default=1.0))
    if high <= low:
        high = low + 1.0
    lines = [
        (
            element("span", row.label, class_="kk-lane", title=row.label),
            element("svg", _track(), [_bar(one, low, high) for one in row.spans], width="100%", height=_HEIGHT),
        )
        for row in shown
    ]
    axis = x_axis(linear_ticks(low, high, 5, write) if ticks is None else ticks, (low, high), 13)
    below = (element("span", class_="kk-lane kk-empty"), element("svg", axis, width="100%", height=18))
    return element("div", lines, below, class_="kk-gantt", role="img", aria_label=label)


def _is_drawn(one: Span) -> bool:
    return finite(one.start) is not None and finite(one.end) is not None


def _track() -> Markup:
    return element("rect", x=0, y=2, width="100%", height=_HEIGHT - 4, rx=3, class_="kk-track")


def _bar(one: Span, low: float, high: float) -> Markup:
    left, right = place(one.start, low, high), place(one.end, low, high)
    mark = one.end <= one.start
    return element(
        "rect", element("title", one.title) if one.title else None, x=f"{left}%", y=2 if not mark else 0,
        width=f"{max(right - left, 0.1):.3f}%" if not mark else 3, height=_HEIGHT - 4 if not mark else _HEIGHT, rx=1.5,
        class_=f"kk-fill-{one.kind} kk-span",
    )  # fmt: skip
