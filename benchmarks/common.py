"""What every benchmark here shares: interleaved rounds, medians, and one table at the end."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)


def interleaved(contenders: Mapping[Key, Callable[[], None]], rounds: int = 9) -> dict[Key, float]:
    """Median seconds of each contender. They take turns, so that a slow spell of the machine hits all alike."""
    samples: dict[Key, list[float]] = {name: [] for name in contenders}
    for contender in contenders.values():
        contender()  # warm up
    for _ in range(rounds):
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender()
            samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in samples.items()}


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A table for people, or JSON lines with --json."""
    if "--json" in sys.argv:
        for row in rows:
            print(json.dumps({"benchmark": title, **dict(zip(columns, row, strict=True))}))
        return
    cells = [[f"{value:.2f}" if isinstance(value, float) else str(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *cells]) for i in range(len(columns))]
    print(f"\n{title}")
    for line in [list(columns), ["-" * width for width in widths], *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
