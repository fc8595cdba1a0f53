"""A bar in a notebook: HTML that is shown once and updated in place. Needs nothing but the kernel itself."""

from __future__ import annotations

from typing import Any

from ..escaping import escaped
from ..html.markup import Markup, element
from .displays import Display
from .progress import Progress

_ACCENT = "#2b8aa8"
_ROUND = "border-radius:0.25em"
_TRACK = (
    "display:inline-block;width:14em;height:0.5em;margin:0 0.4em 0.1em 0.7em;overflow:hidden;"
    f"background:rgba(128,128,128,0.25);{_ROUND}"
)
_LINE = "line-height:1.7;font-variant-numeric:tabular-nums"
_FRAME_SECONDS = 0.2  # each update is a message to the browser


class NotebookBar(Display):
    """One line, which looks right on light and dark pages."""

    draws_over = True

    def __init__(self) -> None:
        self._handle: Any = None

    def pause_seconds(self, progress: Progress) -> float:
        return _FRAME_SECONDS

    def show(self, progress: Progress) -> None:
        self._put(markup_of(progress, progress.words(), progress.doing), str(progress))

    def end(self, progress: Progress, is_whole: bool) -> None:
        ending = progress.ending(is_whole)
        self._put(markup_of(progress, ending.removeprefix(f"{escaped(progress.title)}: "), ""), ending)

    def _put(self, html: str, text: str) -> None:
        from IPython.display import display

        data = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def markup_of(progress: Progress, words: str, doing: str) -> str:
    """A title, a bar where the total is known, and the words."""
    bar = "" if progress.share is None else _bar(100 * progress.share)
    more = element("span", escaped(doing), style="opacity:0.65;margin-left:0.7em") if doing else ""
    return str(element("div", element("b", escaped(progress.title)), bar, " ", escaped(words), more, style=_LINE))


def _bar(percent: float) -> Markup:
    fill = element("span", style=f"display:block;height:100%;width:{percent:.1f}%;background:{_ACCENT};{_ROUND}")
    return element("span", fill, style=_TRACK, role="progressbar", aria_valuenow=f"{percent:.0f}")
