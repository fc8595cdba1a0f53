"""The times in a picture of a tuning, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

INK, SOFT, LINE, DOTS, FAILED, BEST = "#1f2328", "#5b616b", "#2f6f9f", "#7fb2d6", "#b3403a", "#e8590c"


# What is drawn: a `kk.TuneReport` and its attempts. They are defined in a layer above, which draws with this one.
Tuning = Any
Attempt = Any


class TimeUnit:
    """Milliseconds or microseconds, whichever suits the whole picture."""

    def __init__(self, report: Tuning) -> None:
        fast = min((a.milliseconds for a in measured(report)), default=1.0)
        self.name, self.factor = ("µs", 1e3) if fast < 0.1 else ("ms", 1.0)

    def number(self, milliseconds: float) -> str:
        value = milliseconds * self.factor
        return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    def words(self, milliseconds: float) -> str:
        return f"{self.number(milliseconds)} {self.name}"


class Measured(NamedTuple):
    """An attempt that has a time."""

    variant: Mapping[str, Any]
    milliseconds: float
    at_seconds: float
    remembered: bool


def measured(report: Tuning) -> list[Measured]:
    # A time of zero, from a clock that is too coarse, has no logarithm.
    return [
        Measured(a.variant, max(a.milliseconds, 1e-6), a.at_seconds, a.remembered)
        for a in report.attempts
        if a.milliseconds is not None and not a.failure
    ]


def set_time_ticks(axis: Any, low: float, high: float) -> None:
    """Labels such as 2, 5, 10 along a logarithmic axis, also where it spans less than a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)) if high / low > 8 else MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())
