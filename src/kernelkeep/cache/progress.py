"""A progress bar where `rich` is installed, and a line per item on standard error where it is not."""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterator

from ..escaping import escaped

Step = Callable[[str], None]


@contextlib.contextmanager
def progress_bar(title: str, total: int | None, wanted: bool, *, line_seconds: float = 0.0) -> Iterator[Step]:
    """A function to call with the name of each item that is done. `total` is None where it is not known.

    Lines, where there is no bar, are `line_seconds` apart, except for the last one of all items.
    """
    if not wanted:
        yield lambda name: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column
    except ImportError:
        of_all = "" if total is None else f"/{total}"
        done = itertools.count(1)
        printed = -math.inf

        def show(name: str) -> None:
            nonlocal printed
            number, now = next(done), time.monotonic()
            if now - printed >= line_seconds or number == total:
                printed = now
                print(f"{title}: {number}{of_all} {escaped(name)}".rstrip(), file=sys.stderr)

        yield show
        return
    # One line, however long the name is: it gets the width that is left.
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn(
            "{task.fields[word]}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")
        ),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, expand=True) as bar:
        task = bar.add_task(title, total=total, word="")
        yield lambda name: bar.update(task, advance=1, word=escaped(name))
