"""One row of a benchmark, and how it is written: as a line that people read and `rows_in` reads back, and as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ...errors import ArgumentError

COLUMNS = ("work", "device", "kernelkeep", "peer", "its", "ratio", "goal", "met")
_WIDTHS = (58, 8, 10, 34, 10, 6, 6, 3)
_GOAL = re.compile(r"(≤|≥) ?([\d.]+)")
_FIGURE = re.compile(r"([-\d.,e+]+) ?(.*)")
# The lines before the rows, which say where they were measured.
_CONTEXT = ("machine", "versions", "measured", "command")


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """What we need for some work, what the peer needs in the same run, and whether the goal is met."""

    work: str
    ours: float
    unit: str  # of `ours` and `its`: "µs", "ms", "s", "GB/s", …
    device: str = ""  # such as "cuda:0"
    peer: str = ""
    its: float | None = None  # the peer's figure
    ratio: float | None = (
        None  # of our time to the peer's where the goal is "≤", of our speed to the peer's where it is "≥"
    )
    goal: str = ""  # for the ratio, such as "≤ 1.0"; for our own figure where there is no peer
    note: str = ""  # what limits it, where that is not ours, or what the reader must know
    machine: str = ""
    versions: str = ""
    measured: str = ""  # when, how busy the machine was, and with which version of kernelkeep
    command: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where there is none."""
        found = _GOAL.fullmatch(self.goal)
        value = self.ratio if self.peer else self.ours
        if found is None or value is None:
            return None
        # As it is shown: 1.004 is printed as 1.00 and meets "≤ 1.0".
        shown, limit = float(number(value).replace(",", "")), float(found[2])
        return shown <= limit if found[1] == "≤" else shown >= limit


def make_row(
    work: str,
    ours: float,
    unit: str,
    *,
    peer: str = "",
    its: float | None = None,
    goal: str = "",
    ratio: float | None = None,
    **more: Any,
) -> Row:
    """A row with its ratio: our time ÷ the peer's for a goal "≤ …" and for none, the other way round for "≥ …".

    Of rates, whose unit ends with "/s", the ratio of a goal "≥ …" is ours ÷ the peer's. A `ratio` that is given, such as the
    median of the ratios of rounds, is taken as it is.
    """
    if goal and not _GOAL.fullmatch(goal):
        raise ArgumentError(f"goal must be '≤' or '≥' and a number, got {goal!r}")
    if "|" in work + peer:
        raise ArgumentError(f"the row's work and peer must not contain '|', got {work!r} and {peer!r}")
    if bool(peer) != (its is not None):
        raise ArgumentError("peer and its must be given together")
    if ratio is None and its:
        speed = goal.startswith("≥") and not unit.endswith("/s")
        ratio = its / ours if speed else ours / its
    return Row(work, ours, unit, peer=peer, its=its, goal=goal, ratio=ratio, **more)


def number(value: float) -> str:
    """A figure with three digits that matter."""
    if value == 0 or not abs(value) < float("inf"):
        return f"{value:g}"
    digits = max(0, 2 if abs(value) >= 0.1 else 4) if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"


def cells(row: Row) -> list[str]:
    """What stands in the columns."""
    met = {True: "yes", False: "NO", None: ""}[row.met]
    its = "" if row.its is None else f"{number(row.its)} {row.unit}"
    ratio = "" if row.ratio is None else number(row.ratio)
    return [row.work, row.device, f"{number(row.ours)} {row.unit}", row.peer, its, ratio, row.goal, met]


def line(row: Row) -> str:
    """The row as a line of a table. A note follows on a line of its own."""
    return _line(cells(row)) + (f"\n| note: {row.note}" if row.note else "")


def heading(row: Row) -> str:
    """What stands above the rows of a run: where they were measured, and the columns."""
    said = [f"{name}: {getattr(row, name)}" for name in _CONTEXT if getattr(row, name)]
    return "\n".join(["", *said, _line(COLUMNS), "|" + "|".join("-" * (width + 2) for width in _WIDTHS) + "|"])


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(text.ljust(width) for text, width in zip(texts, _WIDTHS, strict=True)) + " |"


def rows_in(text: str) -> Iterator[Row]:
    """The rows of a run: from its JSON lines, or from what it printed, with whatever else stands between them."""
    context: dict[str, Any] = {}
    last: Row | None = None
    for said in text.splitlines():
        found = _row_of(said, context)
        if last is not None and said.startswith("| note: "):
            last = msgspec.structs.replace(last, note=said.removeprefix("| note: "))
            continue
        if last is not None:
            yield last
            last = None
        name, _, value = said.partition(": ")
        if name in _CONTEXT:
            context[name] = value
        last = found
    if last is not None:
        yield last


def _row_of(said: str, context: dict[str, Any]) -> Row | None:
    if said.startswith('{"work":'):
        try:
            return msgspec.json.decode(said.encode(), type=Row)
        except msgspec.DecodeError:
            return None  # cut off
    parts = [part.strip() for part in said.strip().split("|")]
    if (
        len(parts) != len(COLUMNS) + 2
        or not _FIGURE.fullmatch(parts[3])
        or not (not parts[7] or _GOAL.fullmatch(parts[7]))
    ):
        return None
    work, device, ours, peer, its, ratio, goal, _ = parts[1:-1]
    try:
        return Row(work, *_figure(ours), device, peer, _figure(its)[0] if its else None,
                   _figure(ratio)[0] if ratio else None, goal, **context)  # fmt: skip
    except ValueError:
        return None


def _figure(text: str) -> tuple[float, str]:
    found = _FIGURE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return float(found[1].replace(",", "")), found[2]
