"""A progress bar where `rich` is installed, and a line per program on standard error where it is not."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

__all__ = ["progress_bar"]

Step = Callable[[str], None]


@contextlib.contextmanager
def progress_bar(title: str, total: int, wanted: bool) -> Iterator[Step]:
    """A function to call with the name of each thing that is done."""
    if not wanted:
        yield lambda name: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        done = iter(range(1, total + 1))
        yield lambda name: print(f"{title}: {next(done, total)}/{total} {name}", file=sys.stderr)
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda name: bar.update(task, advance=1, description=f"{title}: {name}")
