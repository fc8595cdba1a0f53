"""How a run went over time: how far it was when, the gaps between dispatches, the checkpoints. Bounded, however long it runs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

_MOST = 240  # entries of each kind
_GAP_INTERVALS = 120

T = TypeVar("T")


class Thinned(Generic[T]):
    """Entries in order. Where there are too many, every second one goes, and only every second new one is kept."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._every = 1
        self._seen = 0
        self._kept: list[T] = []

    def add(self, entry: T) -> None:
        """Keep an entry, if it is its turn."""
        if self._seen % self._every == 0:
            self._kept.append(entry)
            if len(self._kept) > self._most:
                del self._kept[1::2]
                self._every *= 2
        self._seen += 1

    def entries(self) -> list[T]:
        """Those that are kept."""
        return list(self._kept)


class ProgressMoment(NamedTuple):
    """The run had completed `iteration` after `seconds`."""

    seconds: float
    iteration: int


class GapMoment(NamedTuple):
    """Gaps between dispatches that were measured around a time: the middle one, and the longest."""

    seconds: float
    middle: float
    longest: float


class CheckpointMoment(NamedTuple):
    """The state of `iteration` was written from `seconds` to `end_seconds`, or could not be (`ok`)."""

    seconds: float
    end_seconds: float
    iteration: int
    ok: bool


@dataclass(frozen=True)
class RunHistory:
    """How a run went, in seconds since it began. Of a long run a sample is kept, of gaps the first few thousand."""

    progress: tuple[ProgressMoment, ...] = ()
    gaps: tuple[GapMoment, ...] = ()
    checkpoints: tuple[CheckpointMoment, ...] = ()


def gaps_over_time(found: Iterable[tuple[float, float]], began: float) -> tuple[GapMoment, ...]:
    """Gaps with the times at which they were measured, as one entry for each of a hundred intervals."""
    pairs = sorted((max(0.0, at - began), gap) for at, gap in found)
    if not pairs:
        return ()
    first, last = pairs[0][0], pairs[-1][0]
    width = (last - first) / _GAP_INTERVALS or 1.0
    groups: dict[int, list[tuple[float, float]]] = {}
    for at, gap in pairs:
        groups.setdefault(min(int((at - first) / width), _GAP_INTERVALS - 1), []).append((at, gap))
    return tuple(
        GapMoment(
            statistics.fmean(at for at, _ in group),
            statistics.median(gap for _, gap in group),
            max(gap for _, gap in group),
        )
        for _, group in sorted(groups.items())
    )
