"""Rows as documents: a Markdown table, and a page with a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ...html.markup import element
from ...html.page import page, panel
from ...storage.files import write_whole
from .parts import Outcome
from .plot import plot
from .row import COLUMNS, Row, cells


def markdown_table(rows: Iterable[Row], columns: Sequence[str] = COLUMNS) -> str:
    """A table of rows. A goal that is missed is in bold."""
    made = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for row in rows:
        found = dict(zip(COLUMNS, cells(row), strict=True))
        if row.met is False:
            found["ratio"] = f"**{found['ratio']}**" if found["ratio"] else ""
            found["met"] = "**no**"
        if row.note:
            found["work"] += f" ({row.note})"
        made.append(f"| {' | '.join(found[name] for name in columns)} |")
    return "\n".join(made) + "\n"


def markdown(outcomes: Iterable[Outcome]) -> str:
    """All parts, each with its command, the machine and its table."""
    said = ["# Benchmarks\n"]
    for outcome in outcomes:
        said.append(f"## {outcome.part.name}\n\n{outcome.part.about}. {outcome.seconds:.0f} s.\n")
        if outcome.error:
            said.append(f"The part failed: {outcome.error}\n")
        if outcome.rows:
            first = outcome.rows[0]
            said.append(f"`{first.command}`; {first.machine}; {first.measured}; {first.versions}\n")
            said.append(markdown_table(outcome.rows))
        elif not outcome.error:
            said.append(f"{nothing_of(outcome)}\n")
    return "\n".join(said)


def nothing_of(outcome: Outcome) -> str:
    """Why a part that did not fail has no rows."""
    return f"Nothing to measure on this device{f': {outcome.missing}' if outcome.missing else ''}."


def html(outcomes: Sequence[Outcome]) -> str:
    """The same as a page, with a picture for each part."""
    panels = []
    for outcome in outcomes:
        about = f"{outcome.part.about}. {outcome.seconds:.0f} s." + (
            f" The part failed: {outcome.error}" if outcome.error else ""
        )
        panels.append(panel(outcome.part.name, outcome.part.name, about, _contents(outcome)))
    links = [(outcome.part.name, outcome.part.name) for outcome in outcomes]
    where = next((row.machine for outcome in outcomes for row in outcome.rows), "")
    return page("Benchmarks", where, links, *panels)


def _contents(outcome: Outcome) -> list[object]:
    rows = outcome.rows
    if not rows:
        return [] if outcome.error else [element("p", nothing_of(outcome))]
    body = [element("tr", [element("td", text) for text in cells(row)]) for row in rows]
    head = element("tr", [element("th", name) for name in COLUMNS])
    table = element("table", element("thead", head), element("tbody", body), class_="kk-table")
    compared = [row for row in rows if row.peer]
    return [
        plot(compared, rows[0].command) if compared else None,
        element("div", table, class_="kk-scroll"),
        element("p", f"{rows[0].measured}; {rows[0].versions}", class_="kk-soft"),
    ]


def save(outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """Write `rows.jsonl`, `rows.md`, `rows.html` and `rows.svg` into the folder, which is made where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for outcome in outcomes for row in outcome.rows]
    made = {
        "rows.jsonl": "".join(msgspec.json.encode(row).decode() + "\n" for row in rows),
        "rows.md": markdown(outcomes),
        "rows.html": html(outcomes),
        "rows.svg": str(plot(rows, "kernelkeep beside its peers")),
    }
    for name, text in made.items():
        write_whole(folder / name, text.encode())
    return [folder / name for name in made]
