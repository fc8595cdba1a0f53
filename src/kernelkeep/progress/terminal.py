"""Bars on a terminal: by `rich` where it is installed, else a line that is drawn over again and again."""

from __future__ import annotations

import shutil
import sys
import unicodedata
from typing import Any

from ..escaping import escaped
from .displays import Display
from .progress import Progress

_FRAME_SECONDS = 0.1
_BAR = 20
_MOST_TITLE = 32  # columns


class PlainBar(Display):
    """One line, with plain characters."""

    draws_over = True

    def __init__(self) -> None:
        self._width = 0  # of what is on the line now

    def pause_seconds(self, progress: Progress) -> float:
        return _FRAME_SECONDS

    def show(self, progress: Progress) -> None:
        self._draw(plain_line(progress))

    def end(self, progress: Progress, is_whole: bool) -> None:
        self._draw(progress.ending(is_whole))
        sys.stderr.write("\n")
        sys.stderr.flush()

    def _draw(self, text: str) -> None:
        fitted, width = fit(text, shutil.get_terminal_size().columns - 1)  # in the last column some terminals wrap
        sys.stderr.write("\r" + fitted + " " * max(0, self._width - width))
        self._width = width
        sys.stderr.flush()


def plain_line(progress: Progress) -> str:
    """A bar and the words, in one line."""
    share = progress.share
    bar = "" if share is None else f"[{'#' * int(share * _BAR):<{_BAR}}] "
    doing = f", {escaped(progress.doing)}" if progress.doing else ""
    return f"{short(progress.title)}: {bar}{progress.words()}{doing}"


def short(title: str) -> str:
    """A title that leaves room for the numbers."""
    whole = escaped(title)
    fitted, _ = fit(whole, _MOST_TITLE)
    return whole if fitted == whole else fitted[:-1] + "…"


def fit(text: str, columns: int) -> tuple[str, int]:
    """As much of a text as fits into so many columns, and how many it takes."""
    width = 0
    for index, character in enumerate(text):
        wide = 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if width + wide > columns:
            return text[:index], width
        width += wide
    return text, width


def rich_console() -> Any:
    """A console on standard error that shows nothing once that is closed; `rich` itself would end the process."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            self.quiet = True

    return Quiet(stderr=True, highlight=False, emoji=False)


class RichBar(Display):
    """A bar by `rich`, which goes on counting the seconds while nothing happens."""

    draws_over = True

    def __init__(self, title: str) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars
        from rich.table import Column

        # One line, however long a name is: what is done now gets the width that is left.
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=_BAR),
            TextColumn("{task.fields[words]}", markup=False, table_column=Column(no_wrap=True)),
            TimeElapsedColumn(),
            TextColumn("{task.fields[doing]}", markup=False, table_column=rest),
            console=rich_console(),
            transient=True,
            expand=True,
        )
        self._task = self._bars.add_task(short(title), total=None, words="", doing="")
        self._bars.start()

    def pause_seconds(self, progress: Progress) -> float:
        return _FRAME_SECONDS

    def show(self, progress: Progress) -> None:
        words, doing = progress.words(elapsed=False), escaped(progress.doing)
        self._bars.update(self._task, completed=progress.done, total=progress.total, words=words, doing=doing)

    def end(self, progress: Progress, is_whole: bool) -> None:
        self._bars.stop()
        sys.stderr.write(progress.ending(is_whole) + "\n")
        sys.stderr.flush()
