"""Counts over time: records of all processes, put into intervals of equal length."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ...html.axis import local_offset
from .fields import amount, number, numbers_by_name, text

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_WIDTHS = (
    10.0,
    30.0,
    _MINUTE,
    5 * _MINUTE,
    15 * _MINUTE,
    _HOUR,
    3 * _HOUR,
    6 * _HOUR,
    12 * _HOUR,
    _DAY,
    7 * _DAY,
    28 * _DAY,
)
_MOST, _FEWEST = 60, 12  # intervals
_LONGEST = 400 * _DAY
SHOWN = ("hits_memory", "hits_disk", "hits_remote", "misses", "compile_seconds", "compile_seconds_saved")


def over_time(records: Iterable[Mapping[str, Any]], now: float, only: Collection[str] | None = None) -> dict[str, Any]:
    """`width_seconds`, and `intervals` with their `start` and the sums of `SHOWN`. No interval where nothing was counted.

    A record counts where it ends. A sum of many records is spread evenly over the time that it spans, in whole numbers.
    """
    found = []
    for record in records:
        end = number(record, "at") or 0.0
        if record.get("kind") == "counts" and now - _LONGEST < end <= now + _DAY and _is_of(record, only):
            since = number(record, "since")
            begin = end if since is None else min(max(since, now - _LONGEST), end)
            spans = begin if "processes" in record else end
            found.append((begin, spans, end, numbers_by_name(record, "counts")))
    if not found:
        return {"width_seconds": _MINUTE, "intervals": []}
    begin, end = min(one[0] for one in found), max(one[2] for one in found)
    width = next((one for one in _WIDTHS if (end - begin) / one <= _MOST), _WIDTHS[-1])
    offset = local_offset(end)
    last = math.floor((end + offset) / width)
    first = min(math.floor((begin + offset) / width), last - _FEWEST + 1)
    sums = [dict.fromkeys(SHOWN, 0.0) for _ in range(first, last + 1)]
    for _, start, stop, counts in found:
        low, high = (math.floor((moment + offset) / width) for moment in (start, stop))
        passed = 0.0  # the share of the time before this interval
        for index in range(low, high + 1):
            closed = (index + 1) * width - offset
            until = 1.0 if index == high else (closed - start) / (stop - start)
            for name in SHOWN:
                sums[index - first][name] += _part(name, max(0.0, amount(counts, name)), passed, until)
            passed = until
    intervals = [{"start": (first + i) * width - offset, **_rounded(one)} for i, one in enumerate(sums)]
    return {"width_seconds": width, "intervals": intervals}


def _is_of(record: Mapping[str, Any], only: Collection[str] | None) -> bool:
    return only is None or text(record, "device") in only


def _part(name: str, whole: float, begin: float, end: float) -> float:
    """What a share of the time has of an amount; of what is counted, a whole number."""
    return whole * (end - begin) if "seconds" in name else round(whole * end) - round(whole * begin)


def _rounded(sums: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in sums.items()}
