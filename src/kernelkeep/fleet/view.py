"""One view of all parts: a table that changes on a terminal, and a line now and then in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..escaping import escaped
from .parts import PartStatus, State

_LINE_SECONDS = 5.0
_FRAME_SECONDS = 0.2
_MOST_ROWS = 20
Show = Callable[[Sequence[PartStatus]], None]


def summary(title: str, statuses: Sequence[PartStatus]) -> str:
    """How far the work is, in one line."""
    counts = {state: sum(status.state is state for status in statuses) for state in State}
    text = f"{title}: {counts[State.DONE]} of {len(statuses)} done, {counts[State.RUNNING]} running"
    if counts[State.FAILED]:
        text += f", {counts[State.FAILED]} failed"
    again = sum(status.losses for status in statuses)
    return text + (f", {again} lost and done again" if again else "")


@contextlib.contextmanager
def progress_view(title: str, wanted: bool) -> Iterator[Show]:
    """A function to call with all parts, as often as you like."""
    if not wanted:
        yield lambda statuses: None
    elif sys.stderr.isatty() and _has_rich():
        with _live(title) as show:
            yield show
    else:
        yield _Lines(title).show


def _has_rich() -> bool:
    try:
        import rich  # noqa: F401
    except ImportError:
        return False
    return True


class _Lines:
    """A line when something has changed, at most every few seconds, and one at the end."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._next = 0.0
        self._last = ""

    def show(self, statuses: Sequence[PartStatus]) -> None:
        over = all(status.state in (State.DONE, State.FAILED) for status in statuses)
        if time.monotonic() < self._next and not over:
            return
        self._next = time.monotonic() + _LINE_SECONDS
        text = summary(self._title, statuses)
        if text != self._last:
            self._last = text
            print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _live(title: str) -> Iterator[Show]:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, emoji=False)
    shown = 0.0
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(statuses: Sequence[PartStatus]) -> None:
            nonlocal shown
            if time.monotonic() - shown >= _FRAME_SECONDS:
                shown = time.monotonic()
                live.update(table_of(title, statuses), refresh=True)

        yield show


def table_of(title: str, statuses: Sequence[PartStatus]) -> Any:
    """The parts that run and those that failed, as many as fit, below a line for all."""
    from rich.table import Table
    from rich.text import Text

    order = (State.RUNNING, State.FAILED, State.WAITING, State.DONE)
    sorted_parts = sorted(statuses, key=lambda status: order.index(status.state))
    made = Table(title=summary(title, statuses), title_justify="left", expand=True)
    for name, justify in (("part", "left"), ("state", "left"), ("where", "left"), ("lost", "right"), ("s", "right")):
        made.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    made.add_column("note", ratio=1, no_wrap=True, overflow="ellipsis")
    for status in sorted_parts[:_MOST_ROWS]:
        cells = (
            status.part.name,
            status.state.value,
            status.where,
            str(status.losses or ""),
            f"{status.elapsed_seconds:.1f}" if status.state is not State.WAITING else "",
            status.error or status.note,
        )
        made.add_row(*(Text(escaped(cell)) for cell in cells))
    if len(sorted_parts) > _MOST_ROWS:
        made.caption = f"and {len(sorted_parts) - _MOST_ROWS} more"
    return made
