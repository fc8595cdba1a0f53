"""What an open object says of itself, as plain data that JSON can hold."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

# Bounds in seconds: from a launch to a compile that takes a minute.
SECONDS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
LABELS = ("device", "name")  # of `about`: those by which the counts of closed objects are kept


class Histogram:
    """How many values fell below each bound, and their sum. Safe under threads."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self._lock = threading.RLock()  # a signal's handler may count while its own thread does

    def add(self, value: float) -> None:
        """Count a value."""
        place = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[place] += 1
            self._sum += value

    def read(self) -> dict[str, Any]:
        """The bounds, how many values are in each interval, and the sum. Takes no lock: a value may be half counted."""
        return {"bounds": list(self._bounds), "counts": list(self._counts), "sum": self._sum}


class Facts:
    """What an object is, what it has counted so far, and how it is now.

    `about` does not change. `counts` are numbers that only grow, and `histograms` have the form of `Histogram.read`: both are
    kept when the object is closed. `now` is forgotten then.
    """

    __slots__ = ("about", "counts", "histograms", "now")

    def __init__(
        self,
        about: dict[str, Any] | None = None,
        counts: dict[str, float] | None = None,
        now: dict[str, Any] | None = None,
        histograms: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        self.about = about or {}
        self.counts = counts or {}
        self.now = now or {}
        self.histograms = histograms or {}


class Sums:
    """The counts of closed objects, by kind and labels. The caller keeps threads apart."""

    _MOST = 500  # sets of labels; what comes after is counted without a name

    def __init__(self) -> None:
        self._sums: dict[tuple[str, ...], dict[str, Any]] = {}

    def add(self, kind: str, facts: Facts) -> None:
        """Count an object that was closed."""
        labels = {name: str(facts.about[name]) for name in LABELS if facts.about.get(name) is not None}
        key = (kind, *(labels.get(name, "") for name in LABELS))
        if key not in self._sums and len(self._sums) >= self._MOST:
            labels = labels | {"name": "others"} if "name" in labels else labels
            key = (kind, *(labels.get(name, "") for name in LABELS))
        found = self._sums.setdefault(
            key, {"kind": kind, "about": labels, "objects": 0, "counts": {}, "histograms": {}}
        )
        # Replaced and not changed: a snapshot may still hold what was there.
        histograms = dict(found["histograms"])
        for name, added in facts.histograms.items():
            histograms[name] = _merged(histograms[name], added) if name in histograms else added
        counts = dict(found["counts"])
        for name, value in facts.counts.items():
            counts[name] = counts.get(name, 0) + value
        self._sums[key] = found | {"objects": found["objects"] + 1, "counts": counts, "histograms": histograms}

    def read(self) -> list[dict[str, Any]]:
        """All of them."""
        return list(self._sums.values())


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    if one["bounds"] != other["bounds"]:
        return one
    counts = [a + b for a, b in zip(one["counts"], other["counts"], strict=True)]
    return {"bounds": one["bounds"], "counts": counts, "sum": one["sum"] + other["sum"]}
