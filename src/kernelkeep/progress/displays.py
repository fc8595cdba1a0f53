"""Which display there is: a notebook, a terminal with or without `rich`, or a log. Progress goes to standard error.

A display that fails shows nothing from then on: a closed pipe or a full disk must not end the user's work.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from .. import settings
from .progress import Progress

_LINE_SECONDS = 5.0  # between two lines in a log; more when the work takes long
_MOST_LINE_SECONDS = 60.0
_LINES_SHARE = 0.05  # of the time so far: the longer it takes, the rarer are the lines


class Display:
    """Shows progress. `first_seconds` is how long it waits before it shows something at all."""

    first_seconds = 0.0
    shows_beginnings = True  # also what begins, and not only what is done
    draws_over = False  # a frame takes the place of the one before, so there may be one more for what begins now

    def pause_seconds(self, progress: Progress) -> float:
        """How long to show nothing after this."""
        return 0.0

    def show(self, progress: Progress) -> None:
        """Show it in place of what was shown before."""

    def end(self, progress: Progress, is_whole: bool) -> None:
        """The last of it; `is_whole` is False where an error ended the work."""


class Lines(Display):
    """A line now and then, and one at the end: for logs."""

    first_seconds = _LINE_SECONDS

    def pause_seconds(self, progress: Progress) -> float:
        return min(_MOST_LINE_SECONDS, max(_LINE_SECONDS, _LINES_SHARE * progress.seconds))

    def show(self, progress: Progress) -> None:
        if progress.done != progress.total:  # the last line comes now
            print(progress, file=sys.stderr, flush=True)

    def end(self, progress: Progress, is_whole: bool) -> None:
        print(progress.ending(is_whole), file=sys.stderr, flush=True)


class Harmless(Display):
    """A display whose failures are nobody's business."""

    def __init__(self, display: Display) -> None:
        self._display: Display | None = display
        self.first_seconds = display.first_seconds
        self.draws_over = display.draws_over
        self.pause_seconds = display.pause_seconds  # type: ignore[method-assign]

    def show(self, progress: Progress) -> None:
        self._try(lambda display: display.show(progress))

    def end(self, progress: Progress, is_whole: bool) -> None:
        self._try(lambda display: display.end(progress, is_whole))

    def _try(self, call: Callable[[Display], None]) -> None:
        if self._display is not None:
            try:
                call(self._display)
            except Exception:
                self._display = None


def open_display(title: str) -> Display | None:
    """The display of this process, or None where nothing is to be shown."""
    chosen = settings.progress()
    if chosen == "0":
        return None
    made: Display | None = None
    with contextlib.suppress(Exception):  # a library of another version; a bar of the user that is open already
        if chosen != "lines":
            made = _bar(title)
    if made is None and sys.stderr is not None:
        made = Lines()
    return None if made is None else Harmless(made)


def _bar(title: str) -> Display | None:
    shell = notebook_shell()
    if shell is not None:
        from .notebook import NotebookBar

        return NotebookBar()
    if not has_terminal():
        return None
    from . import terminal

    return terminal.RichBar(title) if has_rich() else terminal.PlainBar()


def notebook_shell() -> Any:
    """IPython's shell where it runs a notebook's kernel, else None. Nothing is imported for that."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell if hasattr(shell, "kernel") else None


def has_terminal() -> bool:
    """Whether standard error is a terminal that can draw over a line."""
    try:
        return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:  # closed
        return False


def has_rich() -> bool:
    """Whether `rich` is installed."""
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True
