"""What every command shares: three options, output (`output.py`), questions and sizes."""

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

from .. import settings
from ..errors import ArgumentError
from ..escaping import escaped
from .output import Table as Table
from .output import print_fact as print_fact
from .output import print_folded as print_folded
from .output import print_heading as print_heading
from .output import print_line as print_line
from .output import print_table as print_table
from .output import stdout_console as stdout_console

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


def used_ago(then: float | None) -> str:
    """How long ago something was last used. A use is not written again for half a day."""
    from ..cache.manifest import REFRESH_SECONDS

    if then and time.time() - then < REFRESH_SECONDS:
        return f"< {REFRESH_SECONDS / 3600:.0f} hours ago"
    return ago(then)


def agreed(question: str) -> bool:
    """Ask on standard error; whether the answer is yes."""
    print(f"{escaped(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
        raise ArgumentError("standard input has no answer; add --yes to go on without a question")
    return answer.strip().lower() in ("y", "yes")
