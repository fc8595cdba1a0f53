"""What every command shares: its three options, its output and its errors."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

__all__ = [
    "AsJson",
    "CacheDir",
    "DeviceSpec",
    "ago",
    "memory",
    "print_json",
    "print_line",
    "print_table",
    "size",
    "size_from",
    "table",
]

CacheDir = Annotated[
    Path | None,
    typer.Option("--cache-dir", help="The cache folder, instead of $KERNELKEEP_CACHE_DIR or the user's own."),
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
    """Print a line exactly as it is: names may hold square brackets, and a path is copied whole."""
    _console().print(text, markup=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """Print dataclasses, structs, paths, errors, and lists and dicts of them as JSON."""
    print(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Path | Exception):
        return str(value)
    return msgspec.structs.asdict(value)


def memory(nbytes: int) -> str:
    """A number of bytes for people; a device that does not say has 0."""
    if not nbytes:
        return "-"
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"


def size(nbytes: int) -> str:
    """A size on disk for people."""
    amount, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def size_from(text: str) -> int:
    """The bytes a person means by 4096, 500M, 1.5G or 2GiB; units are powers of 1024."""
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
