"""How fast counts grow: from two snapshots of a process, per second."""

from __future__ import annotations

from collections.abc import Iterable

from .live_processes import LiveProcess

Rates = dict[tuple[int, int], dict[str, float]]  # by process and object: each count, per second


def rates_between(before: Iterable[LiveProcess], now: Iterable[LiveProcess]) -> Rates:
    """The rates of what is open in both; of what was opened in between, the average since then."""
    old = {
        (process.pid, one.id): one
        for process in before
        if process.snapshot is not None
        for one in process.snapshot.open
    }
    found: Rates = {}
    for process in now:
        for one in [] if process.snapshot is None else process.snapshot.open:
            earlier = old.get((process.pid, one.id))
            if earlier is None or earlier.kind != one.kind or earlier.seconds > one.seconds:
                seconds, counts = one.seconds, dict.fromkeys(one.counts, 0.0)
            else:
                seconds, counts = one.seconds - earlier.seconds, earlier.counts
            if seconds > 0:
                found[process.pid, one.id] = {
                    name: max(0.0, (value - counts.get(name, 0.0)) / seconds) for name, value in one.counts.items()
                }
    return found
