"""A table of `kernelkeep top`: on one line for each object where the terminal is wide enough, else as words."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

_GAP = 2  # columns between two cells
_LEAST_TEXT = 24  # columns that are left of a long text


class Section:
    """Objects of one kind. The first column names the object; the last one may be a text of any length.

    Where there is no room, the columns named in `optional` are left out, in that order. Where that is not enough, each object
    becomes a sentence. Cells may hold rich's markup; those of `bars` end with a number, which is enough for a sentence.
    """

    def __init__(
        self, *columns: str, left: tuple[str, ...] = (), bars: tuple[str, ...] = (), optional: tuple[str, ...] = ()
    ) -> None:
        self.columns = columns
        self.rows: list[list[Text]] = []
        self._left = (columns[0], columns[-1], *left, *bars)
        self._bars = bars
        self._optional = optional

    def add_row(self, cells: Sequence[str]) -> None:
        """Add an object, with a cell for each column."""
        self.rows.append([Text.from_markup(cell) for cell in cells])

    @property
    def first_width(self) -> int:
        """How wide the first column would like to be."""
        return self._width(0)

    def fitted(self, width: int, first_width: int = 0) -> Table | Text:
        """The table for this width, its first column at least as wide as that of the others."""
        shown = list(range(len(self.columns)))
        for name in (*self._optional, None):
            if self._needed(shown, first_width) <= width:
                return self._table(shown, width, first_width)
            if name is not None:
                shown.remove(self.columns.index(name))
        return self._sentences()

    def _width(self, column: int) -> int:
        return max(len(self.columns[column]), *(row[column].cell_len for row in self.rows), 1)

    def _needed(self, shown: list[int], first_width: int) -> int:
        widths = [self._width(column) for column in shown]
        widths[0] = max(widths[0], first_width)
        widths[-1] = min(widths[-1], max(_LEAST_TEXT, len(self.columns[-1])))
        return sum(widths) + _GAP * len(widths)

    def _table(self, shown: list[int], width: int, first_width: int) -> Table:
        table = Table(box=None, header_style="bold cyan", padding=(0, _GAP, 0, 0), pad_edge=False, width=width)
        for place, column in enumerate(shown):
            last = place == len(shown) - 1
            table.add_column(
                self.columns[column],
                justify="left" if self.columns[column] in self._left else "right",
                no_wrap=True,
                overflow="ellipsis",
                width=None if last else max(self._width(column), first_width if place == 0 else 0),
                ratio=1 if last else None,
            )
        for row in self.rows:
            table.add_row(*(row[column] for column in shown))
        return table

    def _sentences(self) -> Text:
        found = Text()
        for number, row in enumerate(self.rows):
            found.append("\n" if number else "")
            found.append(f"{self.columns[0]} ", style="bold cyan")
            found.append_text(row[0])
            for heading, cell in zip(self.columns[1:], row[1:], strict=True):
                if cell.plain in ("–", ""):
                    continue
                found.append(f", {heading} ", style="dim")
                found.append_text(Text(cell.plain.split()[-1]) if heading in self._bars else _stripped(cell))
        return found


def _stripped(cell: Text) -> Text:
    """A cell without the spaces that hold its column."""
    return cell[len(cell.plain) - len(cell.plain.lstrip()) :]
