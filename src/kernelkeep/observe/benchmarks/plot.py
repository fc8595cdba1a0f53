"""A picture of rows: how many times as fast as the peer each is, with the goal. SVG that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...html.markup import Markup, element
from .row import Row, number

_LEFT, _PLOT, _RIGHT = 410, 400, 250  # pixels: labels, bars, figures
_LINE, _TOP, _BOTTOM = 22, 34, 30
_STYLE = """
.b { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.b text { fill: #1d2127; } .b .soft { fill: #626a75; } .b line { stroke: #c3c9d1; } .b .one { stroke: #626a75; }
.b .won { fill: #1f6f8b; } .b .lost { fill: #b3403a; } .b .goal { stroke: #d9822b; stroke-width: 2.5; }
@media (prefers-color-scheme: dark) {
  .b text { fill: #e4e7eb; } .b .soft { fill: #a3abb6; } .b line { stroke: #3a424c; } .b .one { stroke: #a3abb6; }
  .b .won { fill: #5cb8d6; } .b .lost { fill: #e57a72; } .b .goal { stroke: #e59a4f; }
}
"""


def times_as_fast(row: Row) -> float | None:
    """The peer's time ÷ ours, whichever way the row's ratio is; None without a peer."""
    if not row.peer or not row.ratio or row.ratio <= 0:
        return None
    return row.ratio if row.goal.startswith("≥") else 1 / row.ratio


def goal_as_fast(row: Row) -> float | None:
    """The goal on the same scale."""
    if not row.peer or not row.goal:
        return None
    limit = float(row.goal[1:])
    return limit if row.goal.startswith("≥") else 1 / limit


def plot(rows: Sequence[Row], title: str) -> Markup:
    """A bar for each row that has a peer, from 1 to the right where we are faster and to the left where the peer is.

    The axis is logarithmic. The goal is a mark on the bar's line. Rows that miss their goal have another colour.
    """
    shown = [(row, fast) for row in rows if (fast := times_as_fast(row)) is not None]
    values = [fast for _, fast in shown] + [goal for row, _ in shown if (goal := goal_as_fast(row)) is not None]
    low, high = min([0.5, *values]) / 1.1, max([2.0, *values]) * 1.1
    height = _TOP + _LINE * len(shown) + _BOTTOM
    shapes = [*_grid(low, high, height)]
    for i, (row, fast) in enumerate(shown):
        shapes += _bar(row, fast, _TOP + _LINE * i, (low, high))
    width = _LEFT + _PLOT + _RIGHT
    return element(
        "svg",
        element("style", Markup(_STYLE)),
        element("title", title),
        element("text", title, x=8, y=16, font_weight=600),
        element("text", "times as fast as the peer", x=_LEFT + _PLOT, y=16, text_anchor="end", class_="soft"),
        shapes,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", width="100%", class_="b", role="img",
    )  # fmt: skip


def _bar(row: Row, fast: float, y: float, span: tuple[float, float]) -> list[Markup]:
    start, end = sorted((_x(1.0, span), _x(fast, span)))
    kind = "lost" if row.met is False or (row.met is None and fast < 0.995) else "won"
    label = f"{row.work}, {row.device}" if row.device else row.work
    said = f"{label}: {number(row.ours)} {row.unit}, {row.peer} {number(row.its or 0)} {row.unit}"
    found = [
        element("text", _cut(label), x=_LEFT - 10, y=y + 14, text_anchor="end"),
        element(
            "rect", element("title", said), x=round(start, 1), y=y + 4, width=round(max(end - start, 1.0), 1), height=12,
            class_=kind,
        ),
        element("text", f"{number(fast)}× {_cut(row.peer, 32)}", x=_LEFT + _PLOT + 8, y=y + 14, class_="soft"),
    ]  # fmt: skip
    if (goal := goal_as_fast(row)) is not None:
        at = round(_x(goal, span), 1)
        found.append(element("line", x1=at, x2=at, y1=y + 2, y2=y + 18, class_="goal"))
    return found


def _grid(low: float, high: float, height: int) -> list[Markup]:
    found = []
    steps = [factor * 10.0**power for power in range(-4, 6) for factor in (1, 2, 5)]
    inside = [step for step in steps if low <= step <= high]
    if len(inside) > 9:
        inside = [step for step in inside if math.log10(step) == round(math.log10(step))] or inside
    for step in inside:
        x = round(_x(step, (low, high)), 1)
        found.append(
            element("line", x1=x, x2=x, y1=_TOP - 6, y2=height - _BOTTOM + 4, class_="one" if step == 1 else None)
        )
        found.append(element("text", f"{step:g}×", x=x, y=height - 10, text_anchor="middle", class_="soft"))
    return found


def _x(value: float, span: tuple[float, float]) -> float:
    low, high = (math.log(one) for one in span)
    return _LEFT + _PLOT * (math.log(value) - low) / (high - low)


def _cut(text: str, longest: int = 58) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
