"""`kernelkeep fleet warm|tune|run`: many programs, problems and jobs, on this machine or on a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ..errors import ArgumentError
from ..fleet import jobs as fleet_jobs
from ..fleet import tuning, warming
from ..fleet.report import FleetReport
from ..kernels.catalogue import SHIPPED, parse_problem
from .common import AsJson, CacheDir, RemoteUrl, cache_root, print_json, print_line
from .complaint import complain
from .programs import Defines, Files, Includes, Options, sources_from

fleet = typer.Typer(rich_markup_mode=None, help="Warm, tune and run with many processes or machines.")

_Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="A Ray cluster, such as host:6379, auto or ray://host:10001, instead of $RAY_ADDRESS; local: this machine.",
    ),
]
_Workers = Annotated[
    int | None, typer.Option("--workers", metavar="N", min=1, help="Processes on this machine, instead of one per CPU.")
]


@fleet.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    """Warm, tune and run with many processes or machines."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@fleet.command()
def warm(
    files: Files,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", metavar="TARGET", help="Such as cuda:sm_90, or a device; several times for several."),
    ] = None,
    define: Defines = None,
    include: Includes = None,
    option: Options = None,
    remote: RemoteUrl = None,
    cluster: _Cluster = None,
    workers: _Workers = None,
    cache_dir: CacheDir = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="SPEC", help="Also for this device of the workers.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile many sources for many targets, into a shared store or the cache folder. Ends with 1 if any fails."""
    sources = [source for file in files for source in sources_from(file, define, include, option)]
    targets = [*(target or ()), *([device] if device else [])]
    report = warming.warm(
        sources,
        targets or None,
        remote=remote,
        cache_dir=cache_root(cache_dir),
        cluster=cluster,
        workers=workers,
        progress=not as_json,
    )
    _end(report, as_json)


@fleet.command()
def tune(
    kernel: Annotated[
        str,
        typer.Argument(metavar="KERNEL", help=f"{' or '.join(SHIPPED)}, or FILE.py:NAME for a kk.Tuned of your own."),
    ],
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", metavar="SIZES", help="Such as m=256,n=256,k=256; several times for several."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="SECONDS", help="The time for each problem.")
    ] = None,
    remote: RemoteUrl = None,
    cluster: _Cluster = None,
    cache_dir: CacheDir = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="SPEC", help="A device of the workers, instead of their best.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tune a kernel for many problems, one at a time on each device, and share the results. Ends with 1 if any fails."""
    report = tuning.tune(
        kernel,
        [parse_problem(text) for text in problem or ()],
        budget_seconds=budget,
        remote=remote,
        cache_dir=cache_root(cache_dir),
        device=device,
        cluster=cluster,
        progress=not as_json,
    )
    if not as_json:
        for part in report.parts:
            if part.ok:
                found = part.result
                best = " ".join(f"{name}={value}" for name, value in found.best.items())
                print_line(f"{part.name}: {best}, {found.best_ms:.4g} ms on {found.device}")
    _end(report, as_json)


@fleet.command()
def run(
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help="A list of jobs: JSON, or Python with `jobs = […]`.")],
    cluster: _Cluster = None,
    workers: _Workers = None,
    cache_dir: CacheDir = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="SPEC", help="The device that open_device() opens in the jobs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run many jobs with restarts and checkpoints, until each has returned or failed for good. Ends with 1 if any fails."""
    if cluster not in (None, "local") and (cache_dir is not None or device is not None):
        raise ArgumentError("--cache-dir and --device are for this machine; set KERNELKEEP_* variables on the cluster")
    report = fleet_jobs.run(
        jobs, cluster=cluster, workers=workers, cache_dir=cache_dir, device=device, progress=not as_json
    )
    _end(report, as_json)


def _end(report: FleetReport, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(report))
    else:
        print_line(str(report).partition("\n")[0])
        for part in report.failed:
            complain(f"{part.name}: {part.error}")
    if not report.ok:
        raise typer.Exit(1)


def _as_json(report: FleetReport) -> dict[str, Any]:
    parts = []
    for part in report.parts:
        facts = msgspec.structs.asdict(part)
        try:
            facts["result"] = msgspec.to_builtins(part.result)
        except TypeError:
            facts["result"] = repr(part.result)
        parts.append(facts)
    return {"ok": report.ok, "workers": report.workers, "seconds": report.seconds, "parts": parts}
