"""What a notebook shows of an object: a title, a line about it, and its parts, with the stylesheet."""

from __future__ import annotations

from .markup import Markup, element
from .style import fragment


def card(title: object, about: object = None, *parts: object) -> str:
    """The HTML for an object's `_repr_html_`. Texts are escaped; parts are markup, or lists of it."""
    head = element(
        "div",
        element("span", title, class_="kk-title"),
        element("span", about, class_="kk-soft") if about else None,
        class_="kk-head",
    )
    return str(fragment(element("div", head, parts, class_="kk-card")))


def section(label: str, *parts: object) -> Markup:
    """Parts below a small heading."""
    return element("div", element("div", label, class_="kk-label"), parts, class_="kk-section")


def folded(label: str, *parts: object, is_open: bool = False) -> Markup:
    """Parts that appear when the label is clicked."""
    return element("details", element("summary", label, class_="kk-label"), parts, class_="kk-section", open=is_open)


def side_by_side(*parts: object) -> Markup:
    """Parts beside each other where there is room, else below each other."""
    return element("div", [element("div", part) for part in parts if part], class_="kk-row")


def badge(text: object, kind: str = "quiet") -> Markup:
    """A word in a colour: one of `charts.KINDS`."""
    return element("span", text, class_=f"kk-badge kk-badge-{kind}")
