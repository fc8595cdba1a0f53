"""Where an axis has its labels, and what they say."""

from __future__ import annotations

import calendar
import math
import time
from collections.abc import Callable

from .numbers import short

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE * n for n in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * n for n in (1, 2, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 30, 91, 182, 365)),
)

Tick = tuple[float, str]


def linear_ticks(low: float, high: float, most: int, write: Callable[[float], str]) -> list[Tick]:
    """Round values from `low` to `high`, at most `most` of them, with their labels."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [(low, short(write(low)))] if math.isfinite(low) else []
    rough = (high - low) / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 2.5, 5, 10, 20) if factor * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(n * step, short(write(n * step))) for n in range(first, last + 1)]


def level_ticks(top: float, write: Callable[[float], str]) -> list[Tick]:
    """Round values from 0 to the top of an axis, which is one that `upper_end` returned: three to five steps, all of one size.

    Values for which `write` returns nothing are left out.
    """
    power = 10.0 ** math.floor(math.log10(top)) / 10
    steps = (factor * power for factor in (1, 2, 2.5, 5, 10, 20, 25, 50))
    step = next(one for one in steps if abs(top / one - round(top / one)) < 1e-6 and round(top / one) <= 5)
    ticks = [(n * step, short(write(n * step))) for n in range(round(top / step) + 1)]
    return [tick for tick in ticks if tick[1]]


def upper_end(value: float) -> float:
    """A round number at or above `value`, for the top of an axis."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return power * next(factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if factor * power >= value * 0.999999)


def time_ticks(start: float, end: float, most: int = 5) -> list[Tick]:
    """Round local times between two times in seconds since 1970, with labels such as 14:05 or 3 Mar."""
    if end <= start:
        return [(start, clock(start, 1))]
    rough = (end - start) / max(most, 1)
    step = next((one for one in _STEPS if one >= rough), None) or math.ceil(rough / _STEPS[-1]) * _STEPS[-1]
    offset = local_offset(start)
    first = math.ceil((start + offset) / step)
    last = math.floor((end + offset) / step)
    return [(n * step - offset, clock(n * step - offset, step)) for n in range(first, last + 1)]


def clock(moment: float, step: float) -> str:
    """A local time as short as labels that are `step` seconds apart allow."""
    found = _local(moment)
    day = f"{found.tm_mday} {MONTHS[found.tm_mon - 1]}"
    if step >= 91 * _DAY:
        return f"{MONTHS[found.tm_mon - 1]} {found.tm_year}"
    if step >= _DAY or (step >= _MINUTE and (found.tm_hour, found.tm_min) == (0, 0)):
        return day
    return f"{found.tm_hour:02}:{found.tm_min:02}" + (f":{found.tm_sec:02}" if step < _MINUTE else "")


def moment(when: float) -> str:
    """A local time in full: 3 Mar 2026, 14:05."""
    try:
        found = time.localtime(when)
    except (OverflowError, ValueError, OSError):
        return "–"
    return f"{found.tm_mday} {MONTHS[found.tm_mon - 1]} {found.tm_year}, {found.tm_hour:02}:{found.tm_min:02}"


def place(value: float, low: float, high: float) -> float:
    """Where a value stands between two others, in per cent, and never outside."""
    if not math.isfinite(value) or high <= low:
        return 0.0
    return round(min(max((value - low) / (high - low), 0.0), 1.0) * 100, 3)


def anchor(percent: float) -> str:
    """How a label is aligned, so that the first and the last stay inside the picture."""
    return "start" if percent < 4 else "end" if percent > 96 else "middle"


def _local(when: float) -> time.struct_time:
    try:
        return time.localtime(when)
    except (OverflowError, ValueError, OSError):
        return time.gmtime(0)


def local_offset(when: float) -> int:
    """Seconds that local clocks are ahead of UTC."""
    found = _local(when)
    return calendar.timegm(found) - int(time.mktime(found))
