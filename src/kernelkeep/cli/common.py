"""What every command shares: its three options, its output and its errors."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

__all__ = ["AsJson", "CacheDir", "DeviceSpec", "memory", "print_json", "print_line", "print_table", "table"]

CacheDir = Annotated[
    Path | None,
    typer.Option("--cache-dir", help="Folder for what is kept, here the OpenGL driver's compiled shaders."),
]
DeviceSpec = Annotated[
    str | None,
    typer.Option("--device", help="A backend or a device, such as opencl or cuda:0, instead of all of them."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]

# Output that is not a terminal is not squeezed into 80 columns: a log keeps whole lines.
_PIPED_WIDTH_COLUMNS = 200


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPED_WIDTH_COLUMNS)


def table(*columns: str, right: tuple[str, ...] = (), title: str | None = None) -> Table:
    """An empty table; the columns named in `right` hold numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", caption_justify="left")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return made


def print_table(made: Table) -> None:
    """Print a table."""
    _console().print(made)


def print_line(text: str = "") -> None:
    """Print a line exactly as it is: device names and error texts may hold square brackets."""
    _console().print(text, markup=False)


def print_json(value: Any) -> None:
    """Print dataclasses, lists and dicts of them as JSON."""
    print(json.dumps(value, default=dataclasses.asdict, indent=2, ensure_ascii=False))


def memory(nbytes: int) -> str:
    """A number of bytes for people; a device that does not say has 0."""
    if not nbytes:
        return "-"
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"
