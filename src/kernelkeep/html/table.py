"""Tables. Numbers stand on the right, and a cell can say by what it sorts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .markup import Markup, element, escape
from .numbers import count, finite


@dataclass(frozen=True)
class Column:
    """The head of a column. `number`: on the right; None asks the cells. `hint` is shown when the mouse rests on it."""

    label: str
    number: bool | None = None
    hint: str = ""


@dataclass(frozen=True)
class Cell:
    """What a cell shows, by what it sorts if that is something else, and what is shown when the mouse rests on it."""

    shown: object
    sort: float | str | None = None
    title: str = ""


def table(
    columns: Sequence[str | Column],
    rows: Iterable[Sequence[object]],
    *,
    caption: str = "",
    name: str = "",
    sortable: bool = False,
    filterable: bool = False,
) -> Markup:
    """A table. Cells are text, numbers, `Markup` or `Cell`s. `sortable` and `filterable` mark it for the script of a page
    (`html/page.py`); without one it is a plain table."""
    heads = [column if isinstance(column, Column) else Column(column) for column in columns]
    body = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    right = [
        head.number
        if head.number is not None
        else bool(body) and all(_is_number(row[i]) for row in body if i < len(row))
        for i, head in enumerate(heads)
    ]
    head = element(
        "tr",
        [
            element("th", one.label, class_="kk-n" if is_right else None, scope="col", title=one.hint or None)
            for one, is_right in zip(heads, right, strict=True)
        ],
    )
    lines = [element("tr", [_cell(cell, is_right) for cell, is_right in zip(row, right, strict=False)]) for row in body]
    shown = element(
        "table",
        element("caption", caption) if caption else None,
        element("thead", head),
        element("tbody", lines),
        class_="kk-table",
        data_sortable=sortable,
        data_filterable=filterable,
        aria_label=name or None,
    )
    return element("div", shown, class_="kk-scroll", tabindex=0, role="region", aria_label=name or caption or "table")


def facts(rows: Iterable[tuple[str, object]]) -> Markup:
    """Names and values, one pair in a line."""
    lines = [
        element("tr", element("th", label, scope="row"), element("td", value if value is not None else "–"))
        for label, value in rows
    ]
    return element("table", element("tbody", lines), class_="kk-facts")


def _is_number(cell: Cell) -> bool:
    return isinstance(cell.shown, int | float) and not isinstance(cell.shown, bool)


def _cell(cell: Cell, is_right: bool) -> Markup:
    shown = count(cell.shown) if _is_number(cell) else escape(cell.shown) if cell.shown is not None else "–"
    sort = cell.sort
    if sort is None and _is_number(cell):
        sort = finite(cell.shown)
    elif isinstance(sort, float | int):
        sort = finite(sort)
    return element("td", shown, class_="kk-n" if is_right else None, data_sort=sort, title=cell.title or None)
