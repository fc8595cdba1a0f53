"""`kernelkeep trace`: what ran when, as a file that a trace viewer opens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..cache.stats import human_bytes
from ..devices.registry import open_device
from ..observe.trace_demo import run_trace_demo
from .common import AsJson, CacheDir, Table, cache_root, print_json, print_line, print_table

trace = typer.Typer(add_completion=False, rich_markup_mode=None)


@trace.callback(invoke_without_command=True)
def start(context: typer.Context) -> None:
    """Write a timeline of what overlapped, for a trace viewer."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@trace.command()
def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")] = Path(
        "kernelkeep-trace.json"
    ),
    cache_dir: CacheDir = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="SPEC", help="A device, such as cuda:0, instead of the best.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline of a few dozen batches and write its timeline.

    Upload, kernel and download of neighbouring batches overlap as far as the device can. Exits with 1 if a result is
    wrong.
    """
    cache_root(cache_dir)
    with open_device(device, cache_dir=cache_dir) as opened:
        found = run_trace_demo(opened, out, cache_dir=cache_dir)
    if as_json:
        print_json(found)
    else:
        size, took = human_bytes(found.batch_bytes), f"{found.seconds * 1e3:,.1f} ms"
        print_line(f"{found.device}: {found.device_name}, {found.batches} batches of {size} in {took}")
        made = Table("engine", "busy", right=("busy",))
        for engine, share in found.busy.items():
            made.add_row(engine, f"{share:.0%}")
        print_table(made)
        print_line(f"The device computed during {found.overlap:.0%} of the time that uploads took.")
        print_line(f"The trace is in {found.trace}: open it in ui.perfetto.dev.")
        if not found.ok:
            print_line(f"failed: {found.problem}")
    if not found.ok:
        raise typer.Exit(1)
