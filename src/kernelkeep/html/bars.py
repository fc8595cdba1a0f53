"""Horizontal bars: one line of text for each, and the bar below it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .axis import place
from .markup import Markup, element
from .numbers import count, finite


@dataclass(frozen=True)
class Bar:
    """A bar. `shown` is the number as people read it; `kind` is one of the colours of `charts.KINDS`."""

    label: str
    value: float
    shown: str = ""
    title: str = ""
    kind: str = "accent"


def bars(items: Sequence[Bar], *, label: str) -> Markup:
    """Bars from zero, the longest across the whole width. `label` says what they show, to those who cannot see it."""
    top = max((finite(item.value) or 0.0 for item in items), default=0.0) or 1.0
    return element("div", [_line(item, top) for item in items], class_="kk-bars", role="list", aria_label=label)


def _line(item: Bar, top: float) -> Markup:
    width = place(finite(item.value) or 0.0, 0.0, top)
    shape = element("rect", x=0, y=0, width=f"{width}%", height=8, rx=2, class_=f"kk-fill-{item.kind}")
    track = element("rect", x=0, y=0, width="100%", height=8, rx=2, class_="kk-track")
    return element(
        "div",
        element("span", item.label, class_="kk-bar-label"),
        element("span", item.shown or count(item.value), class_="kk-bar-value"),
        element("svg", track, shape, width="100%", height=8, aria_hidden="true"),
        class_="kk-bar",
        role="listitem",
        title=item.title or item.label,
    )
