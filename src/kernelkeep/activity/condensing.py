"""What stays of a diary that became too long: sums of old counts, the last records of each kind, the slowest compiles."""

from __future__ import annotations

import json
from collections.abc import Iterable

from .diary import Record, recorded_at

_HOUR, _DAY = 3600.0, 86400.0
_COUNTS_WHOLE = 500  # the newest, as they were written
_HOURS_KEPT, _DAYS_KEPT = 30 * _DAY, 400 * _DAY  # how far back sums of hours and of days go
_MOST_SUMS = 3000
_NEWEST = {"compile": 200, "executor": 80, "run": 80, "resident": 80}
_OTHERS = 50  # of each kind that a newer version writes
_SLOWEST = 30  # compiles
_DETAILED = 12  # of each kind keep their long parts
_LONG_PARTS = ("spans", "gaps", "progress", "checkpoint_times")


def condense(records: Iterable[Record], now: float, most_bytes: int) -> list[Record]:
    """The records to keep, oldest first, in at most `most_bytes` as lines of JSON."""
    by_kind: dict[str, list[Record]] = {}
    for record in records:
        by_kind.setdefault(record["kind"], []).append(record)
    counts, whole = by_kind.pop("counts", []), _COUNTS_WHOLE
    kept = sum_counts(counts, now, whole)
    others: list[Record] = []
    for kind, found in by_kind.items():
        newest = found[-_NEWEST.get(kind, _OTHERS) :]
        if kind == "compile":
            older = sorted(found[: -len(newest)], key=_seconds)
            newest = [*older[-_SLOWEST:], *newest]
        others += [_short(record) for record in newest[:-_DETAILED]] + newest[-_DETAILED:]
    others.sort(key=recorded_at)
    while _size(kept) + _size(others) > most_bytes and (kept or others):
        # The details go first, then the oldest of whatever is longer. Of counts more become sums before any is lost.
        if any(part in record for record in others for part in _LONG_PARTS):
            others = [_short(record) for record in others]
        elif _size(others) >= _size(kept):
            others = others[len(others) // 4 + 1 :]
        elif whole:
            whole //= 2
            kept = sum_counts(counts, now, whole)
        else:
            kept = kept[len(kept) // 4 + 1 :]
    return sorted([*kept, *others], key=recorded_at)


def sum_counts(records: list[Record], now: float, whole: int) -> list[Record]:
    """The newest `whole` counts as they are, and the sums of older ones for each hour or day and device, oldest first."""
    older, newest = records[: max(0, len(records) - whole)], records[max(0, len(records) - whole) :]
    sums: dict[tuple[float, float, str], Record] = {}
    for record in older:
        age = now - record["at"]
        if age > _DAYS_KEPT:
            continue
        length = _HOUR if age < _HOURS_KEPT else _DAY
        start = record["at"] // length * length
        key = (start, length, str(record.get("device", "")))
        sums[key] = _added(sums.get(key), record)
    return [*sorted(sums.values(), key=recorded_at)[-_MOST_SUMS:], *newest]


def _added(total: Record | None, record: Record) -> Record:
    if total is None:
        total = {name: record[name] for name in ("kind", "at", "since", "device") if name in record}
        total |= {"counts": {}, "processes": 0}
    counts = dict(total["counts"])
    found = record.get("counts")
    for name, amount in (found if isinstance(found, dict) else {}).items():
        if _is_number(amount):
            counts[name] = round(counts.get(name, 0) + amount, 6)
    since = [one["since"] for one in (total, record) if _is_number(one.get("since"))]
    more = record.get("processes", 1)
    total = total | {"at": max(total["at"], record["at"]), "counts": counts}
    total["processes"] += more if _is_number(more) else 1
    return total | ({"since": min(since)} if since else {})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18


def _short(record: Record) -> Record:
    return {name: value for name, value in record.items() if name not in _LONG_PARTS}


def _seconds(record: Record) -> float:
    found = record.get("seconds")
    return float(found) if _is_number(found) and found is not None else 0.0


def _size(records: list[Record]) -> int:
    return sum(len(json.dumps(record, separators=(",", ":"))) + 1 for record in records)
