"""What every command shares: three options, output and errors."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from .. import settings
from ..errors import ArgumentError
from ..escaping import escaped

CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir", metavar="DIR", help="The cache folder, instead of $KERNELKEEP_CACHE_DIR or the user's own."
    ),
]
DeviceSpec = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="SPEC", help="A backend or a device, such as opencl or cuda:0, instead of all of them."
    ),
]
FolderSpec = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="SPEC|FOLDER",
        help="A device, a backend, or a GPU's folder or its last 12 digits, here or gone, instead of all.",
    ),
]
RemoteUrl = Annotated[
    str | None,
    typer.Option(
        "--remote", metavar="URL", help="A shared store, such as redis://host/0, instead of $KERNELKEEP_REMOTE."
    ),
]
SigningKey = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="A key file, instead of the keys of `kernelkeep keys`."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]

# Output that is not a terminal keeps whole lines instead of 80 columns, unless $COLUMNS is set.
_PIPED_WIDTH_COLUMNS = 200
_FOLDED_WIDTH_COLUMNS = 20  # a column of text may become as narrow as this before a whole column is left out
_NARROWEST_COLUMNS = 4


def cache_root(chosen: Path | None) -> Path:
    """The cache folder to work on. One that does not exist is empty; a path that cannot be a folder is an error."""
    root = settings.cache_dir(chosen)
    try:
        found = os.stat(root)  # noqa: PTH116
    except FileNotFoundError:
        return root
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ArgumentError(f"{root} cannot be a cache folder: {reason}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise ArgumentError(f"{root} is not a folder and cannot be a cache folder")
    return root


def stdout_console() -> Console:
    """The console that text for people goes to."""
    asked = os.environ.get("COLUMNS", "")
    fits_itself = sys.stdout.isatty() or (asked.isdecimal() and int(asked) > 0)
    return Console(highlight=False, emoji=False, width=None if fits_itself else _PIPED_WIDTH_COLUMNS)


class Table:
    """A table that is fitted to the width of the terminal when it is printed.

    Columns named in `right` hold numbers, which are never folded; their headings are. If the table is still too wide, the
    columns named in `optional` are left out, in that order. Cells may hold rich's markup; other control characters are escaped.
    """

    def __init__(
        self, *columns: str, right: tuple[str, ...] = (), optional: tuple[str, ...] = (), caption: str | None = None
    ) -> None:
        self.columns = columns
        self.right = right
        self.optional = optional
        self.caption = caption
        self.rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row with a cell for each column."""
        self.rows.append(tuple(escaped(cell) for cell in cells))

    def fitted(self, width: int) -> RichTable:
        """The table for this width."""
        shown = list(range(len(self.columns)))
        for name in self.optional:
            if sum(self._narrow(i) for i in shown) <= _room(width, len(shown)):
                break
            shown.remove(self.columns.index(name))
        widths = self._widths(shown, _room(width, len(shown)))
        made = RichTable(caption=self.caption, caption_justify="left")
        for i in shown:
            justify = "right" if self.columns[i] in self.right else "left"
            made.add_column(self.columns[i], justify=justify, overflow="fold", width=widths[i])  # type: ignore[arg-type]
        for row in self.rows:
            made.add_row(*(row[i] for i in shown))
        return made

    def _widths(self, shown: list[int], room: int) -> dict[int, int]:
        """The width of each column: headings of numbers are folded first, then texts, then the widest column."""
        widths = {i: max(len(self.columns[i]), self._longest(i)) for i in shown}
        least = {i: self._narrow(i) for i in shown}
        while sum(widths.values()) > room:
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
        return max((Text.from_markup(row[column]).cell_len for row in self.rows), default=0)


def _room(width: int, columns: int) -> int:
    return width - 3 * columns - 1  # a border and two spaces for each column, and the last border


def print_table(made: Table) -> None:
    """Print a table."""
    console = stdout_console()
    if console.is_terminal:
        console.print(made.fitted(console.width))
        return
    with console.capture() as captured:
        console.print(made.fitted(console.width))
    for line in captured.get().splitlines():
        print(line.rstrip())


def print_line(text: str = "") -> None:
    """Print a line without markup or folding, with control characters escaped."""
    stdout_console().print(escaped(text, keep="\n\t"), markup=False, soft_wrap=True)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print dataclasses, structs, mappings, paths, errors, and lists and dicts of them as JSON; without `indent` in one line."""
    text = json.dumps(value, default=_plain, indent=indent, ensure_ascii=False)
    # JSON allows characters that a terminal should not get. They are inside strings, so JSON's own escapes work.
    print("".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Path | Exception):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    return msgspec.structs.asdict(value)


def size_from(text: str) -> int:
    """The bytes of a size such as 4096, 500M, 1.5G or 2GiB; units are powers of 1024."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size; write it like 500M or 2G")
    return int(float(match.group(1)) * 1024 ** " kmgt".index(match.group(2).lower() or " "))


def ago(then: float | None) -> str:
    """How long ago a time was, for people."""
    if not then:
        return "-"
    seconds = max(0.0, time.time() - then)
    for length, unit in ((86400 * 365, "year"), (86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"


def agreed(question: str) -> bool:
    """Ask on standard error; whether the answer is yes."""
    print(f"{escaped(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
        raise ArgumentError("standard input has no answer; add --yes to go on without a question")
    return answer.strip().lower() in ("y", "yes")
