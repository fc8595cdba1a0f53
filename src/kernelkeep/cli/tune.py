"""`kernelkeep tune`: measure the variants of a kernel; show, move and remove the results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import settings
from ..cache.program_cache import ProgramCache
from ..devices.registry import open_device
from ..errors import ArgumentError, RemoteError
from ..kernels.catalogue import SHIPPED, CatalogueEntry, find_kernel, parse_problem
from ..observe.tuning_overview import known_problems, records_in
from ..pictures.file import check_picture
from ..remote.address import Remote
from ..variants.records import Records
from ..variants.report import TuneReport
from ..variants.sharing import SharedRecords, share_with, take_from
from .common import AsJson, CacheDir, cache_root, print_json, print_line
from .complaint import complain
from .tuning_records import (
    Problem,
    counted,
    export_records,
    forget_records,
    import_records,
    select_variants,
    show_records,
)


def tune(
    kernel: Annotated[
        str | None,
        typer.Argument(metavar="KERNEL", help=f"{' or '.join(SHIPPED)}, or FILE.py:NAME for a kk.Tuned of your own."),
    ] = None,
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", metavar="SIZES", help="Such as m=256,n=256,k=256; several times for several."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option("--budget", metavar="SECONDS", help="The time for each problem.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw what was found: .png, .svg or .pdf.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Measure again what was measured before.")] = False,
    select: Annotated[
        bool, typer.Option("--select", help="Measure nothing: say which variant would run, and why.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Show what is known.")] = False,
    export: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write what is known to a file of JSON lines.")
    ] = None,
    import_: Annotated[Path | None, typer.Option("--import", metavar="FILE", help="Read such a file.")] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Remove what is known; asks first.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    share: Annotated[
        bool,
        typer.Option(
            "--share", help="Take what others have measured first, and give them the results; alone: what is known."
        ),
    ] = False,
    remote: Annotated[
        list[str] | None,
        typer.Option(
            "--remote",
            metavar="URL",
            help="The shared store, instead of $KERNELKEEP_REMOTE; may be repeated.",
        ),
    ] = None,
    cache_dir: CacheDir = None,
    device: Annotated[
        str | None,
        typer.Option(
            "--device",
            metavar="SPEC",
            help="A device, such as cuda:0, instead of the best; for --show, --export and --forget instead of all.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the fastest variant of a kernel for some problems, verified, and remember it.

    Without --problem some common ones are tuned. What was measured before is not measured again, so an interrupted
    tuning continues where it stopped. Ends with 1 if every variant of a problem failed, or the results could not be shared.
    """
    modes = {"--select": select, "--show": show, "--export": export, "--import": import_, "--forget": forget}
    asked = [name for name, value in modes.items() if value]
    if len(asked) > 1:
        raise ArgumentError(f"{asked[0]} and {asked[1]} do not go together")
    tuning = {"--budget": budget is not None, "--picture": picture is not None, "--force": force}
    useless = [name for name, given in tuning.items() if given and asked]
    if useless:
        raise ArgumentError(f"{useless[0]} is for tuning, and {asked[0]} measures nothing")
    if asked and share:
        raise ArgumentError(f"--share and {asked[0]} do not go together")
    if remote and not share:
        raise ArgumentError("--remote is for --share")
    root = cache_root(cache_dir)
    stores = (remote or settings.remotes()) if share else None
    if share and kernel is None:
        _share_known(root, stores, _digest_of(device, cache_dir), as_json)
        return
    if not asked or select:
        if kernel is None:
            raise ArgumentError(f"KERNEL is missing: name one of {', '.join(SHIPPED)}, or FILE.py:NAME for your own")
        entry = find_kernel(kernel)
        problems = [entry.complete(parse_problem(text)) for text in problem or ()]
        if select:
            select_variants(entry, problems, cache_dir, device, as_json)
        else:
            _tune(entry, problems, budget, picture, force, stores, cache_dir, device, as_json)
        return
    if problem:
        raise ArgumentError(f"{asked[0]} is for all problems; --problem does not go with it")
    name = _name_of(kernel)
    if import_ is not None:
        import_records(root, import_, as_json)
        return
    digest = _digest_of(device, cache_dir)
    with records_in(root) as records:
        if not show and kernel is not None and name not in records.names():
            raise ArgumentError(f"nothing is known of a kernel {kernel} in {root}")
        if show:
            show_records(root, kernel, known_problems(records, name, digest), as_json)
        elif export is not None:
            export_records(records, export, name, digest, as_json)
        else:
            forget_records(records, name, digest, yes, as_json)


def _name_of(kernel: str | None) -> str | None:
    """The name that results are stored under; what was typed, where that is neither a shipped kernel nor a file."""
    if kernel in SHIPPED:
        return f"kernelkeep.{kernel}"
    return find_kernel(kernel).name if kernel is not None and ".py" in kernel else kernel


def _digest_of(device: str | None, cache_dir: Path | None) -> str | None:
    if device is None:
        return None
    with open_device(device, cache_dir=cache_dir) as opened:
        return opened.fingerprint.digest


# --- tuning


def _tune(
    entry: CatalogueEntry,
    problems: list[Problem],
    budget: float | None,
    picture: Path | None,
    force: bool,
    stores: Any,
    cache_dir: Path | None,
    device: str | None,
    as_json: bool,
) -> None:
    problems = problems or list(entry.problems)
    if not problems:
        raise ArgumentError(f"{entry.name} needs a problem to be tuned for: give --problem NAME=VALUE,NAME=VALUE")
    if picture is not None:
        check_picture(picture)
    reports: list[TuneReport] = []
    drawn: list[Path] = []
    tried = 0

    def count(attempt: object) -> None:
        nonlocal tried
        tried += 1

    with open_device(device, cache_dir=cache_dir) as opened, ProgramCache(opened, cache_dir) as cache:
        tuned = entry.tuned_for(opened, None)
        records, digest = tuned.records(cache), opened.fingerprint.digest
        if stores is not None and not force:
            _take(records, stores, tuned.name, digest, as_json)
        try:
            for problem in problems:
                tuned = entry.tuned_for(opened, problem)
                report = tuned.tune(cache, problem, budget, progress=not as_json, listen=count, force=force)
                reports.append(report)
                if not as_json:
                    print_line(str(report))
                if picture is not None:
                    drawn.append(_picture_of(picture, problem, several=len(problems) > 1))
                    report.save_picture(drawn[-1])
        except KeyboardInterrupt:
            kept = f"what is known of {tried} variant{'' if tried == 1 else 's'} of {entry.name} is kept"
            complain(
                f"interrupted; {kept if tried else 'nothing was measured yet'}, and the same command continues there"
            )
            raise typer.Exit(130) from None
        shared = [] if stores is None else share_with(stores, records, device=digest, tuned=tuned.name)
    if as_json:
        data = {"reports": [_as_json(report) for report in reports], "pictures": drawn}
        print_json(data if stores is None else data | {"shared": _shared_as_json(shared)})
    else:
        _print_shared(shared)
        for path in drawn:
            print_line(f"The picture is in {path}.")
    if any(report.best is None for report in reports):
        raise typer.Exit(1)


def _picture_of(picture: Path, problem: Problem, several: bool) -> Path:
    if not several:
        return picture
    words = "-".join(f"{name}{value}" for name, value in problem.items()).replace("/", "_")
    return picture.with_name(f"{picture.stem}-{words}{picture.suffix}")


def _as_json(report: TuneReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in report.__struct_fields__} | {
        "complete": report.complete,
        "measured": report.measured,
        "remembered": report.remembered,
        "failures": report.failures,
        "seconds_to_best": report.seconds_to_best,
    }


# --- sharing


def _take(records: Records, stores: Any, tuned: str, digest: str, as_json: bool) -> None:
    """Take what others have measured. Tuning goes on without it; whether sharing works is found out at the end."""
    try:
        taken = take_from(stores, records, device=digest, tuned=tuned)
    except RemoteError as error:
        complain(f"what others have measured cannot be taken: {error}")
        return
    for remote, one in taken:
        for name, reason in one.refused:
            complain(f"{remote.location}/{name} is refused: {reason}")
        if one.changed and not as_json:
            print_line(f"{counted(one.changed)} taken from {remote.location}")


def _share_known(root: Path, stores: Any, digest: str | None, as_json: bool) -> None:
    with records_in(root) as records:
        shared = share_with(stores, records, device=digest)
    if as_json:
        print_json({"shared": _shared_as_json(shared)})
    else:
        _print_shared(shared)


def _print_shared(shared: list[tuple[Remote, SharedRecords]]) -> None:
    for remote, one in shared:
        print_line(f"{counted(one.records)} shared with {remote.location}")


def _shared_as_json(shared: list[tuple[Remote, SharedRecords]]) -> list[dict[str, Any]]:
    return [
        {"remote": remote.location, "records": one.records, "taken": one.changed, "refused": dict(one.refused)}
        for remote, one in shared
    ]
