"""One view of all parts: a table that changes on a terminal; elsewhere what any long call shows."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import settings
from ..escaping import escaped
from ..progress.displays import has_rich, has_terminal, notebook_shell
from ..progress.reporter import Wanted, check_wanted, reported
from .parts import PartStatus, State

_FRAME_SECONDS = 0.2
_MOST_ROWS = 20
Show = Callable[[Sequence[PartStatus]], None]


def summary(title: str, statuses: Sequence[PartStatus]) -> str:
    """How far the work is, in one line."""
    over, failed = _counts(statuses)
    text = f"{title}: {over} of {len(statuses)} parts" + (f", {failed} failed" if failed else "")
    return f"{text}, {_doing(statuses)}"


def _counts(statuses: Sequence[PartStatus]) -> tuple[int, int]:
    """How many parts are over, and how many of them failed."""
    failed = sum(status.state is State.FAILED for status in statuses)
    return failed + sum(status.state is State.DONE for status in statuses), failed


def _doing(statuses: Sequence[PartStatus]) -> str:
    running = [status.part.name for status in statuses if status.state is State.RUNNING]
    again = sum(status.losses for status in statuses)
    text = f"{len(running)} running" + (f", {again} lost and done again" if again else "")
    return text + (f", now {running[-1]}" if running else "")


@contextlib.contextmanager
def progress_view(title: str, total: int, progress: Wanted) -> Iterator[Show]:
    """A function to call with all parts, as often as you like."""
    check_wanted(progress)
    on_terminal = settings.progress() == "" and notebook_shell() is None and has_terminal() and has_rich()
    with contextlib.ExitStack() as stack:
        drawn = stack.enter_context(_live(title)) if progress is True and on_terminal else None
        # The table is the view; what remains on the terminal afterwards is the report that the caller prints.
        report = stack.enter_context(reported(title, total, progress if drawn is None else False, unit="parts"))

        def show(statuses: Sequence[PartStatus]) -> None:
            over, failed = _counts(statuses)
            if drawn is not None:
                drawn(statuses)
            report.reach(over, _doing(statuses), failed=failed)

        yield show


@contextlib.contextmanager
def _live(title: str) -> Iterator[Show]:
    from rich.live import Live

    from ..progress.terminal import rich_console

    console = rich_console()
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
