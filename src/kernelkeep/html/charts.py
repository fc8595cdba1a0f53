"""Charts over an axis: stacked columns over time, and lines. Shapes take per cent of the width, so text keeps its size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .axis import Tick, anchor, level_ticks, place, time_ticks, upper_end
from .markup import Markup, element, join
from .numbers import count, finite

# The colours a series or a bar may have: one accent in three strengths, one for what costs, one for what failed, one without.
KINDS = ("accent", "middle", "light", "warn", "bad", "quiet")
_TOP, _BOTTOM = 10, 24  # pixels above and below the plot
_NEAR = 24  # per cent of the width, between two labels


@dataclass(frozen=True)
class Series:
    """Values with a name. `kind` is one of `KINDS`."""

    name: str
    values: Sequence[float]
    kind: str = "accent"


def stacked_columns(
    starts: Sequence[float],
    width_seconds: float,
    series: Sequence[Series],
    *,
    label: str,
    write: Callable[[float], str] = count,
    describe: Callable[[int], str] | None = None,
    height: int = 200,
) -> Markup:
    """A column for each interval of time, made of one part for each series; `starts` are seconds since 1970.

    `label` says what is shown and in which unit. `describe` gives the text that appears over column `i`.
    """
    parts = [[max(finite(value) or 0.0, 0.0) for value in one.values] for one in series]
    top = upper_end(max((sum(column) for column in zip(*parts, strict=True)), default=0.0))
    low, high = _span(starts, width_seconds)
    shapes = []
    for i, start in enumerate(starts):
        left, right = place(start, low, high), place(start + width_seconds, low, high)
        gap = min(0.2, (right - left) * 0.12)
        below = 0.0
        pieces = []
        for values, one in zip(parts, series, strict=True):
            if values[i] > 0:
                pieces.append(_piece(below, values[i], top, height, left + gap, right - left - 2 * gap, one.kind))
                below += values[i]
        if pieces:
            title = describe(i) if describe is not None else ""
            shapes.append(element("g", element("title", title) if title else None, pieces))
    plot = _plot(shapes, time_ticks(low, high), (low, high), level_ticks(top, write), top, height, label)
    return element("figure", legend(series), plot, class_="kk-figure")


def lines(
    xs: Sequence[float],
    series: Sequence[Series],
    *,
    label: str,
    x_ticks: Sequence[Tick] | None = None,
    write: Callable[[float], str] = count,
    height: int = 200,
    filled: bool = False,
) -> Markup:
    """A line for each series over `xs`, seconds since 1970 unless `x_ticks` says otherwise. A value that is not finite is a gap.

    `filled` colours the area below the lines.
    """
    low, high = (min(xs), max(xs)) if xs else (0.0, 1.0)
    top = upper_end(max((finite(value) or 0.0 for one in series for value in one.values), default=0.0))
    inner = [_line(xs, one, (low, high), top, filled) for one in series]
    # A path takes no per cent: it is drawn in a square of 100 that is stretched to the plot.
    shapes = element(
        "svg", inner, x=0, y=_TOP, width="100%", height=height - _TOP - _BOTTOM, viewBox="0 0 100 100",
        preserveAspectRatio="none",
    )  # fmt: skip
    ticks = time_ticks(low, high) if x_ticks is None else x_ticks
    plot = _plot(shapes, ticks, (low, high), level_ticks(top, write), top, height, label)
    return element("figure", legend(series), plot, class_="kk-figure")


def legend(series: Sequence[Series]) -> Markup:
    """The names of the series with their colours."""
    entries = [
        element("span", element("i", class_=f"kk-dot kk-dot-{one.kind}"), one.name, class_="kk-key") for one in series
    ]
    return element("figcaption", entries, class_="kk-legend")


def x_axis(ticks: Sequence[Tick], span: tuple[float, float], y: float) -> Markup:
    """The labels below a plot."""
    places = [(place(value, *span), text) for value, text in ticks]
    # The labels at both ends are moved inside: in a narrow window they would meet their neighbours.
    if len(places) > 3 and places[-1][0] > 96 and places[-1][0] - places[-2][0] < _NEAR:
        places.pop()
    if len(places) > 3 and places[0][0] < 4 and places[1][0] - places[0][0] < _NEAR and len(places[0][1]) > 3:
        places.pop(0)
    return join(element("text", text, x=f"{at}%", y=y, text_anchor=anchor(at), class_="kk-tick") for at, text in places)


def _plot(
    shapes: object,
    x_ticks: Sequence[Tick],
    span: tuple[float, float],
    y_ticks: Sequence[Tick],
    top: float,
    height: int,
    label: str,
) -> Markup:
    """Shapes between a left column of labels, lines across and labels below."""
    levels = [(_y(value, top, height), text) for value, text in y_ticks]
    left = [element("text", text, x="100%", y=y + 4, text_anchor="end", class_="kk-tick") for y, text in levels]
    across = [element("line", x1=0, x2="100%", y1=y, y2=y, class_="kk-grid") for y, _ in levels]
    return element(
        "div",
        element("svg", left, width="100%", height=height, class_="kk-y", aria_hidden="true"),
        element(
            "svg", across, shapes, x_axis(x_ticks, span, height - 6), width="100%", height=height, role="img",
            aria_label=label, class_="kk-x",
        ),
        class_="kk-plot",
    )  # fmt: skip


def _piece(below: float, value: float, top: float, height: int, x: float, width: float, kind: str) -> Markup:
    y, bottom = _y(below + value, top, height), _y(below, top, height)
    return element(
        "rect", x=f"{x:.3f}%", width=f"{max(width, 0.15):.3f}%", y=round(y, 2), height=round(max(bottom - y, 0.75), 2),
        class_=f"kk-fill-{kind}",
    )  # fmt: skip


def _line(xs: Sequence[float], one: Series, span: tuple[float, float], top: float, filled: bool) -> Markup:
    runs: list[list[tuple[float, float]]] = [[]]
    for x, value in zip(xs, one.values, strict=True):
        number = finite(value)
        if number is None:
            runs.append([])
        else:
            runs[-1].append((place(x, *span), round(100 - place(number, 0, top), 3)))
    pieces = []
    for run in filter(None, runs):
        # Numbers only, and as many as there are: a text of this length would be cut.
        ends = run if len(run) > 1 else [run[0], (run[0][0] + 0.4, run[0][1])]
        points = Markup(" ".join(f"{x},{y}" for x, y in ends))
        if filled:
            pieces.append(
                element(
                    "polygon",
                    points=Markup(f"{run[0][0]},100 {points} {run[-1][0]},100"),
                    class_=f"kk-area kk-fill-{one.kind}",
                )
            )
        pieces.append(element("polyline", points=points, class_=f"kk-line kk-line-{one.kind}"))
    return element("g", element("title", one.name), pieces)


def _span(starts: Sequence[float], width_seconds: float) -> tuple[float, float]:
    return (min(starts), max(starts) + width_seconds) if starts else (0.0, 1.0)


def _y(value: float, top: float, height: int) -> float:
    return round(_TOP + (height - _TOP - _BOTTOM) * (1 - place(value, 0, top) / 100), 2)
