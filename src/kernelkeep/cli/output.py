"""Text for people: tables, lines and facts that fit the terminal. Piped output has everything, in whole lines."""

from __future__ import annotations

import os
import re
import sys
import textwrap

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

from ..escaping import escaped

_PIPED_WIDTH_COLUMNS = 200  # where captions are folded; tables are as wide as they must be
_FOLDED_WIDTH_COLUMNS = 20  # a column of text may become as narrow as this before a whole column is left out
_NARROWEST_COLUMNS = 4
_GAP_COLUMNS = 2  # between two columns
_DIGITS = 13  # how much of a folder's end tells it from others: "_" and 12 digits


def fits_terminal() -> bool:
    """Whether output must fit a width: a terminal's, or $COLUMNS."""
    asked = os.environ.get("COLUMNS", "")
    return sys.stdout.isatty() or (asked.isdecimal() and int(asked) > 0)


def stdout_console() -> Console:
    """The console that text for people goes to."""
    return Console(highlight=False, emoji=False, width=None if fits_terminal() else _PIPED_WIDTH_COLUMNS)


def shortened(text: str, width: int) -> str:
    """A name with its middle left out where it is wider: its end tells it from others. Of a list, the end is left out."""
    if len(text) <= width:
        return text
    if ", " in text:
        return f"{text[: max(width - 1, 0)].rstrip(', ')}…"
    tail = min(max((width - 1) // 2, _DIGITS), max(width - 5, 0))
    return f"{text[: max(width - 1 - tail, 0)]}…{text[len(text) - tail :]}"


class Table:
    """A table that is fitted to the width of the terminal when it is printed.

    Columns named in `right` hold numbers, which are never folded; their headings are. Those in `names` hold names, whose middle
    is left out where there is no room; other texts are folded. If the table is still too wide, the columns named in `optional`
    are left out, in that order. Cells may hold rich's markup; other control characters are escaped.
    """

    def __init__(
        self,
        *columns: str,
        right: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
        optional: tuple[str, ...] = (),
        caption: str | None = None,
    ) -> None:
        self.columns = columns
        self.right = right
        self.names = names
        self.optional = optional
        self.caption = caption
        self.rows: list[tuple[str, ...]] = []
        self.alike: list[Table] = [self]  # these get the same columns, with the same widths

    def add_row(self, *cells: str) -> None:
        """Add a row with a cell for each column."""
        self.rows.append(tuple(escaped(cell) for cell in cells))

    def fitted(self, width: int | None) -> RichTable:
        """The table for this width; as wide as it must be for None."""
        shown = list(range(len(self.columns)))
        for name in self.optional:
            if width is None or sum(self._narrow(i) for i in shown) <= _room(width, len(shown)):
                break
            shown.remove(self.columns.index(name))
        widths = self._widths(shown, None if width is None else _room(width, len(shown)))
        made = RichTable(
            box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP_COLUMNS - 1, 0, 0),
            caption=self.caption, caption_justify="left", border_style="dim", header_style="bold",
        )  # fmt: skip
        for i in shown:
            justify = "right" if self.columns[i] in self.right else "left"
            made.add_column(self.columns[i], justify=justify, overflow="fold", width=widths[i])  # type: ignore[arg-type]
        for row in self.rows:
            made.add_row(*(self._cell(row[i], i, widths[i]) for i in shown))
        return made

    def _cell(self, cell: str, column: int, width: int) -> str:
        plain = Text.from_markup(cell)
        if self.columns[column] not in self.names or plain.cell_len <= width:
            return cell
        return escape(shortened(plain.plain, width))

    def _widths(self, shown: list[int], room: int | None) -> dict[int, int]:
        """The width of each column: headings of numbers are folded first, then texts, then the widest column."""
        widths = {i: max(len(self.columns[i]), self._longest(i)) for i in shown}
        least = {i: self._narrow(i) for i in shown}
        while room is not None and sum(widths.values()) > room:
            numbers = [i for i in shown if widths[i] > least[i] and self.columns[i] in self.right]
            texts = [i for i in shown if widths[i] > least[i]]
            rest = [i for i in shown if widths[i] > _NARROWEST_COLUMNS]
            candidates = numbers or texts or rest
            if not candidates:
                break
            widths[max(candidates, key=lambda i: widths[i])] -= 1
        return widths

    def _narrow(self, column: int) -> int:
        """The narrowest width at which a column is still readable."""
        longest = self._longest(column)
        if self.columns[column] not in self.right:
            longest = min(longest, _FOLDED_WIDTH_COLUMNS)
        return max(longest, *(len(word) for word in self.columns[column].split()), 1)

    def _longest(self, column: int) -> int:
        rows = (row for table in self.alike for row in table.rows)
        return max((Text.from_markup(row[column]).cell_len for row in rows), default=0)


def _room(width: int, columns: int) -> int:
    return width - _GAP_COLUMNS * (columns - 1)


def print_table(made: Table) -> None:
    """Print a table."""
    console = stdout_console()
    if console.is_terminal:
        console.print(made.fitted(console.width))
        return
    table = made.fitted(console.width if fits_terminal() else None)
    if not fits_terminal():
        console = Console(
            highlight=False, emoji=False, width=max(_PIPED_WIDTH_COLUMNS, sum(c.width or 0 for c in table.columns) + 99)
        )
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def print_line(text: str = "") -> None:
    """Print a line without markup or folding, with control characters escaped."""
    stdout_console().print(escaped(text, keep="\n\t"), markup=False, soft_wrap=True)


class _Wrapper(textwrap.TextWrapper):
    """Folds names of folders and paths between their parts as well."""

    wordsep_simple_re = re.compile(r"(\s+|(?<=[_/]))")


def print_folded(text: str, indent: int = 0) -> None:
    """Print a line that is folded between words on a terminal; all lines but the first are indented."""
    shown = escaped(text)
    if fits_terminal():
        width = max(stdout_console().width, indent + 20)
        shown = _Wrapper(width, subsequent_indent=" " * indent, break_on_hyphens=False).fill(shown)
    print_line(shown)


def print_fact(label: str, value: str) -> None:
    """Print a label and a value in two columns."""
    print_folded(f"{label:<15} {escaped(value)}", 16)


def print_heading(name: str) -> None:
    """Print a folder's name above what is in it, shortened where it does not fit."""
    console = stdout_console()
    shown = shortened(escaped(name), console.width) if fits_terminal() else escaped(name)
    console.print(Text(shown, style="bold cyan"), soft_wrap=True)
