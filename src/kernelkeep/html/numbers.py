"""Numbers for people: short, with a unit, and a dash where there is none to show."""

from __future__ import annotations

import math

NOTHING = "–"
_LARGEST = 1e15  # beyond it the digits say nothing


def finite(value: object) -> float | None:
    """`value` as a float; None where it is no number, not finite, or too large for one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def count(value: object) -> str:
    """1,234; with three digits where it is no whole number."""
    number = finite(value)
    if number is None:
        return NOTHING
    if abs(number) >= _LARGEST:
        return f"{number:.3g}"
    return f"{int(number):,}" if number == int(number) else rounded(number)


def rounded(value: float) -> str:
    """Three digits, and never an exponent below 10¹⁵: 1,234, 12.3, 0.0123."""
    if abs(value) >= _LARGEST or (value and abs(value) < 1e-6):
        return f"{value:.3g}"
    if abs(value) >= 99.95 or not value:
        return f"{value:,.0f}"
    exponent = int(f"{value:.2e}".partition("e")[2])  # after rounding: 0.9999 is 1.00
    return f"{value:.{2 - exponent}f}"


def milliseconds(value: object) -> str:
    """A duration in milliseconds, in the unit that suits it: 850 µs, 12.3 ms, 4.56 s, 3 min 20 s, 5 h 3 min, 12 d 4 h."""
    number = finite(value)
    if number is None:
        return NOTHING
    if number == 0:
        return "0 ms"
    size = abs(number)
    if size < 0.001:
        return f"{rounded(number * 1e6)} ns"
    if size < 0.9995:
        return f"{rounded(number * 1e3)} µs"
    if size < 999.5:
        return f"{rounded(number)} ms"
    if size < 59_950:
        return f"{rounded(number / 1e3)} s"
    sign = "-" if number < 0 else ""
    for unit, smaller, length, parts in (("min", "s", 60, 60), ("h", "min", 3600, 60), ("d", "h", 86400, 24)):
        steps = round(size / 1e3 / length * parts)
        if steps < parts * (60 if unit == "min" else 24) or unit == "d":
            whole, rest = divmod(steps, parts)
            return f"{sign}{whole:,} {unit} {rest} {smaller}" if rest and whole < 1000 else f"{sign}{whole:,} {unit}"
    return NOTHING


def seconds(value: object) -> str:
    """A duration in seconds, as `milliseconds` writes it."""
    number = finite(value)
    return NOTHING if number is None else milliseconds(number * 1e3)


def size(value: object) -> str:
    """A number of bytes: 512 B, 1.5 KiB, 3.0 GiB."""
    number = finite(value)
    if number is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1023.95 or unit == "TiB":
            break
        number /= 1024
    return f"{number:.0f} B" if unit == "B" else f"{number:,.1f} {unit}"


def share(value: object) -> str:
    """A share of one in per cent: 97%, 99.9%; 100% only where it is whole."""
    number = finite(value)
    if number is None:
        return NOTHING
    percent = number * 100
    if 0 < percent < 0.1:
        return "<0.1%"
    if 99.9 < percent < 100:
        return ">99.9%"
    return f"{percent:,.0f}%" if percent in (0, 100) or 1 <= percent <= 99 else f"{percent:,.1f}%"


def short(text: str) -> str:
    """A number as labels along an axis have it, without zeros behind the point: 50.0 s is 50 s, 0 ms is 0."""
    number, space, unit = text.partition(" ")
    if "." in number and "e" not in number:
        number = number.rstrip("0").rstrip(".")
    return number if number in ("0", "-0") else f"{number}{space}{unit}"


def ago(value: object) -> str:
    """A time in seconds that has passed: just now, 5 min ago, 3 d ago."""
    number = finite(value)
    if number is None or number < -60:
        return NOTHING
    for unit, length in (("year", 31_557_600), ("month", 2_629_800), ("day", 86_400), ("h", 3600), ("min", 60)):
        if number >= length:
            whole = int(number // length)
            plural = "s" if whole != 1 and unit in ("year", "month", "day") else ""
            return f"{whole:,} {unit}{plural} ago"
    return "just now"
