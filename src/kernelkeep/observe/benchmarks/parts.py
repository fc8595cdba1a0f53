"""The parts of a benchmark: scripts of the folder `benchmarks/`, each run as a process of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ...errors import ArgumentError
from ...installation import installed_from
from ...processes import python_environment
from . import UNMEASURED
from .row import Row, rows_in

TABLE = "parts.toml"
LIMIT_SECONDS, LONG_LIMIT_SECONDS = 120.0, 1800.0  # a part ends by itself within a minute; what hangs is ended
_CHECKOUT = Path(__file__).resolve().parents[4] / "benchmarks"


class Part(msgspec.Struct, frozen=True):
    """Rows that one run of a script prints."""

    name: str
    command: str  # the script and its arguments
    about: str


class Outcome(msgspec.Struct, frozen=True):
    """What running a part gave. `error` is one sentence, empty where the script ended well; `missing` says what is not here."""

    part: Part
    seconds: float
    rows: tuple[Row, ...]
    error: str = ""
    missing: str = ""


def scripts_folder(chosen: Path | None = None) -> Path:
    """The folder with the scripts: the one given, `benchmarks/` below the current folder, or that of the clone we come from."""
    tried = [chosen] if chosen is not None else [Path("benchmarks"), _CHECKOUT]
    if chosen is None and (origin := installed_from()) is not None:
        tried.append(origin / "benchmarks")
    for folder in tried:
        if (folder / TABLE).is_file():
            return folder.resolve()
    if chosen is not None:
        raise ArgumentError(f"{chosen} has no {TABLE}: it is not kernelkeep's folder of benchmarks")
    raise ArgumentError(
        "the benchmarks beside peers are scripts that are not installed: run this in a clone, or pass --scripts CLONE/benchmarks"
    )


def parts_in(folder: Path, names: Iterable[str] = ()) -> list[Part]:
    """The parts that are named, in the order of the table; all of them where none is named or one of the names is "all"."""
    table = tomllib.loads((folder / TABLE).read_text(encoding="utf-8"))
    parts = [Part(name, str(fields["command"]), str(fields["about"])) for name, fields in table.items()]
    wanted = set(names)
    if unknown := sorted(wanted - {part.name for part in parts} - {"all"}):
        raise ArgumentError(f"PART must be all, {', '.join(part.name for part in parts)}; got {unknown[0]}")
    return [part for part in parts if not wanted or "all" in wanted or part.name in wanted]


def run_parts(
    folder: Path, parts: Iterable[Part], *, device: str | None = None, long: bool = False
) -> Iterator[Outcome]:
    """Run one part after the other. A part that fails does not stop the others, and the rows it had printed are kept."""
    for part in parts:
        yield _run(folder, part, device, LONG_LIMIT_SECONDS if long else LIMIT_SECONDS, ["--long"] if long else [])


def _run(folder: Path, part: Part, device: str | None, limit: float, more: list[str]) -> Outcome:
    script, *arguments = shlex.split(part.command)
    with tempfile.TemporaryDirectory(prefix="kernelkeep-bench-") as name:
        file = Path(name) / "rows.jsonl"
        chosen = ["--device", device] if device else []
        command = [sys.executable, str(folder / script), *arguments, *chosen, *more, "--json", str(file)]
        began = time.monotonic()
        process = subprocess.Popen(
            command, env=python_environment(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            _, said = process.communicate(timeout=limit)
            status: int | None = process.returncode
        except subprocess.TimeoutExpired:
            process.kill()
            said, status = process.communicate()[1], None
        except BaseException:
            process.kill()
            process.communicate()
            raise
        seconds = time.monotonic() - began
        rows = tuple(rows_in(file.read_text(encoding="utf-8"))) if file.exists() else ()
    last = (said.strip().splitlines()[-1:] or [""])[0][:300]
    if status == UNMEASURED:
        return Outcome(part, seconds, rows, missing=last)
    return Outcome(part, seconds, rows, _error(status, last, limit))


def _error(status: int | None, last: str, limit: float) -> str:
    if status == 0:
        return ""
    if status is None:
        return f"it was ended after {limit:.0f} s"
    return f"it ended with exit status {status}: {last}" if last else f"it ended with exit status {status}"
