"""How far a run is, and a bar that shows it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

__all__ = ["Progress", "progress_teller"]


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    iteration: int  # counted from the very beginning
    iterations: int | None  # where it ends, if that is known
    seconds: float  # of this run
    pending_tasks: int = 0


@contextlib.contextmanager
def progress_teller(title: str, total: int | None, wanted: bool) -> Iterator[Callable[[Progress], None]]:
    """A function to call now and then: a bar where `rich` is installed, else a line on standard error each second."""
    if not wanted:
        yield lambda progress: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress as Bar
    except ImportError:
        told = [0.0]

        def say(progress: Progress) -> None:
            if progress.seconds - told[0] >= 1:
                told[0] = progress.seconds
                print(f"{title}: iteration {progress.iteration:,}", file=sys.stderr)

        yield say
        return
    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda progress: bar.update(task, completed=progress.iteration)
