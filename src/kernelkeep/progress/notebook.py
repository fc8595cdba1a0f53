"""A bar in a notebook: HTML that is shown once and updated in place. Needs nothing but the kernel itself."""

from __future__ import annotations

from typing import Any

from ..escaping import escaped
from ..html.markup import element
from .displays import Display
from .progress import Progress

_FRAME_SECONDS = 0.2  # each update is a message to the browser


class NotebookBar(Display):
    """The browser's own bar, which is light or dark like the page."""

    first_seconds = _FRAME_SECONDS

    def __init__(self) -> None:
        self._handle: Any = None

    def pause_seconds(self, progress: Progress) -> float:
        return _FRAME_SECONDS

    def show(self, progress: Progress) -> None:
        self._put(markup_of(progress, progress.words(), progress.doing), str(progress))

    def end(self, progress: Progress, is_whole: bool) -> None:
        ending = progress.ending(is_whole)
        self._put(markup_of(progress, ending.removeprefix(f"{escaped(progress.title)}: "), "", over=is_whole), ending)

    def _put(self, html: str, text: str) -> None:
        from IPython.display import display

        data = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def markup_of(progress: Progress, words: str, doing: str, over: bool = False) -> str:
    """A title, a bar, and the words. Without a total the bar moves by itself until the work is over."""
    share = 1.0 if over and progress.total is None else progress.share
    attributes: dict[str, object] = {} if share is None else {"value": f"{share:.4f}", "max": "1"}
    bar = element("progress", style="width:14em;vertical-align:middle;margin:0 0.7em", **attributes)
    more = element("span", escaped(doing), style="opacity:0.65;margin-left:0.7em") if doing else ""
    return str(element("div", element("b", escaped(progress.title)), bar, escaped(words), more))
