"""How far a run is, and a bar that shows it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    iteration: int  # counted from the very beginning
    iterations: int | None  # where it ends, if that is known
    seconds: float  # of this run
    pending_tasks: int = 0


@contextlib.contextmanager
def show_progress(title: str, total: int | None, wanted: bool) -> Iterator[Callable[[Progress], None]]:
    """A function to call between turns: it shows a bar where `rich` is installed, else a line on standard error each second."""
    if not wanted:
        yield lambda progress: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress as Bar
    except ImportError:
        printed = 0.0

        def show(progress: Progress) -> None:
            nonlocal printed
            if progress.seconds - printed >= 1:
                printed = progress.seconds
                print(f"{title}: iteration {progress.iteration:,}", file=sys.stderr)

        yield show
        return
    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda progress: bar.update(task, completed=progress.iteration)
