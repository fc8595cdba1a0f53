"""What every benchmark here shares: interleaved rounds, medians, and one table at the end."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import kernelkeep as kk

Key = TypeVar("Key", bound=Hashable)


def interleaved(contenders: Mapping[Key, Callable[[], None]], rounds: int = 9) -> dict[Key, float]:
    """Median seconds of each contender. They take turns, so that a slow spell of the machine hits all alike."""
    return {name: statistics.median(times) for name, times in rounds_of(contenders, rounds).items()}


def rounds_of(contenders: Mapping[Key, Callable[[], None]], rounds: int) -> dict[Key, list[float]]:
    """Seconds of each contender in each round, after one to warm up."""
    samples: dict[Key, list[float]] = {name: [] for name in contenders}
    for contender in contenders.values():
        contender()  # warm up
    for _ in range(rounds):
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender()
            samples[name].append(time.perf_counter() - start)
    return samples


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


def chosen_sections(sections: Mapping[str, Any]) -> list[str]:
    """The sections named on the command line, or all of them."""
    return [argument for argument in sys.argv[1:] if argument in sections] or list(sections)


def chosen_devices() -> list[kk.DeviceInfo]:
    """The devices that --device names, such as "opencl" or "cuda:0", or all of them."""
    if "--device" not in sys.argv:
        return kk.list_devices()
    spec = sys.argv[sys.argv.index("--device") + 1]
    return [info for info in kk.list_devices() if spec in (info.backend, info.spec)]
