"""`kernelkeep bench`: what things cost on this machine, alone and beside the peers that the scripts of a checkout know."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..cache.stats import human_bytes
from ..errors import DeviceError
from ..observe.bench import Figure, bench_devices
from ..observe.benchmarks.documents import nothing_of, save
from ..observe.benchmarks.parts import Outcome, Part, parts_in, run_parts, scripts_folder
from ..observe.benchmarks.row import COLUMNS, cells
from ..observe.inventory import find_devices
from .common import AsJson, CacheDir, DeviceSpec, Table, cache_root, print_heading, print_json, print_line, print_table

_CAPTION = (
    "Medians, and the range without the fastest and slowest tenth, of one process whose libraries are loaded. A launch is what "
    "the call costs the host; the device may take longer."
)


def bench(
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="PART", help="Parts to measure beside their peers, or all; --list names them."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Write the parts' rows there: rows.jsonl, .md, .html and .svg."),
    ] = None,
    long: Annotated[bool, typer.Option("--long", help="Let a part take longer than a minute.")] = False,
    scripts: Annotated[
        Path | None,
        typer.Option(
            "--scripts", metavar="FOLDER", help="The folder benchmarks/ of a checkout, by default of this one."
        ),
    ] = None,
    list_parts: Annotated[bool, typer.Option("--list", help="Name the parts and what each is beside.")] = False,
    programs: Annotated[
        int, typer.Option("--programs", metavar="N", min=1, help="How many programs are compiled on each device.")
    ] = 5,
    cache_dir: CacheDir = None,
    device: DeviceSpec = None,
    as_json: AsJson = False,
) -> None:
    """Measure compiles, cache hits, launches and the executor on each device.

    With PART, run that benchmark of a checkout instead: each row has our figure, a peer's in the same run, their ratio and the
    goal. Parts run on the device that kernelkeep chooses, or on --device, and take up to a minute each.

    The caches in use are left alone: programs are kept in a temporary folder, with --cache-dir in one below that.
    """
    if parts or list_parts:
        folder = scripts_folder(scripts)
        chosen = parts_in(folder, parts or ())
        if list_parts:
            _list(chosen, as_json)
        else:
            _compare(folder, chosen, device or find_devices(None)[0].spec, long=long, out=out, as_json=as_json)
        return
    if out is not None or scripts is not None or long:
        raise typer.BadParameter("--out, --scripts and --long go with a PART, such as all")
    below = None if cache_dir is None else cache_root(cache_dir)
    if below is not None:
        below.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = [info for info in find_devices(device) if device or not info.is_interpreter]
    if not found:
        raise DeviceError("no device was found; `kernelkeep doctor` says what is missing")
    results = []
    for one in bench_devices([info.spec for info in found], programs=programs, cache_dir=below):
        results.append(one)
        if not as_json:
            _show(f"{one.device}  {one.device_name}", one.figures, last=len(results) == len(found))
    if as_json:
        print_json(results)


def _list(parts: list[Part], as_json: bool) -> None:
    if as_json:
        print_json(parts)
        return
    made = Table("part", "what it measures", "command")
    for part in parts:
        made.add_row(part.name, part.about, part.command)
    print_table(made)


def _compare(folder: Path, parts: list[Part], device: str, *, long: bool, out: Path | None, as_json: bool) -> None:
    """Run parts and show each when it is done; exit status 1 where one failed."""
    outcomes = []
    for outcome in run_parts(folder, parts, device=device, long=long):
        outcomes.append(outcome)
        if out is not None:
            save(outcomes, out)  # after each: what was measured is not lost where the next one is interrupted
        if not as_json:
            _show_rows(outcome)
    if as_json:
        print_json([row for outcome in outcomes for row in outcome.rows])
    elif out is not None:
        print_line(f"{out}: rows.jsonl, rows.md, rows.html, rows.svg")
    if failed := [outcome for outcome in outcomes if outcome.error]:
        raise DeviceError("; ".join(f"{outcome.part.name} failed: {outcome.error}" for outcome in failed))


def _show_rows(outcome: Outcome) -> None:
    met = sum(row.met is True for row in outcome.rows)
    goals = sum(row.met is not None for row in outcome.rows)
    ended = "failed" if outcome.error else f"{met} of {goals} goals met" if goals else f"{len(outcome.rows)} rows"
    print_heading(f"{outcome.part.name}  {ended}, {outcome.seconds:.1f} s")
    if outcome.rows:
        made = Table(*COLUMNS, right=("kernelkeep", "its", "ratio"))
        for row in outcome.rows:
            made.add_row(*cells(row))
        print_table(made)
    elif not outcome.error:
        print_line(nothing_of(outcome))
    print_line()


def _show(heading: str, figures: tuple[Figure, ...], last: bool) -> None:
    numbers = ("median", "range", "samples")
    made = Table("what", *numbers, right=numbers, optional=("samples",), caption=_CAPTION if last else None)
    for figure in figures:
        rate = f" at {human_bytes(round(figure.bytes / figure.seconds))}/s" if figure.bytes else ""
        spread = f"{_time(figure.low_seconds)} – {_time(figure.high_seconds)}"
        made.add_row(figure.name + rate, _time(figure.seconds), spread, str(figure.samples))
    print_heading(heading)
    print_table(made)
    print_line()


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:,.1f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:,.2f} µs"
