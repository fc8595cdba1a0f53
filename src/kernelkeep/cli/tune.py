"""`kernelkeep tune`: measure the variants of a kernel; show, move and remove the results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..cache.program_cache import ProgramCache
from ..devices.registry import open_device
from ..errors import ArgumentError, VariantError
from ..kernels.catalogue import SHIPPED, CatalogueEntry, find_kernel, parse_problem
from ..observe.tuning_overview import KnownProblem, known_problems, records_in
from ..pictures.file import check_picture
from ..variants.records import Records
from ..variants.report import TuneReport
from ..variants.select import Selection
from ..variants.tuned import Tuned
from ..variants.values import in_words
from .common import AsJson, CacheDir, Table, ago, agreed, cache_root, print_json, print_line, print_table
from .complaint import complain

Problem = dict[str, Any]


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
    tuning continues where it stopped. Ends with 1 if every variant of a problem failed.
    """
    modes = {"--select": select, "--show": show, "--export": export, "--import": import_, "--forget": forget}
    asked = [name for name, value in modes.items() if value]
    if len(asked) > 1:
        raise ArgumentError(f"{asked[0]} and {asked[1]} do not go together")
    tuning = {"--budget": budget is not None, "--picture": picture is not None, "--force": force}
    useless = [name for name, given in tuning.items() if given and asked]
    if useless:
        raise ArgumentError(f"{useless[0]} is for tuning, and {asked[0]} measures nothing")
    root = cache_root(cache_dir)
    if not asked or select:
        if kernel is None:
            raise ArgumentError(f"KERNEL is missing: name one of {', '.join(SHIPPED)}, or FILE.py:NAME for your own")
        entry = find_kernel(kernel)
        problems = [entry.complete(parse_problem(text)) for text in problem or ()]
        if select:
            _select(entry, problems, cache_dir, device, as_json)
        else:
            _tune(entry, problems, budget, picture, force, cache_dir, device, as_json)
        return
    if problem:
        raise ArgumentError(f"{asked[0]} is for all problems; --problem does not go with it")
    name = _name_of(kernel)
    if import_ is not None:
        _import(root, import_, as_json)
        return
    digest = _digest_of(device, cache_dir)
    with records_in(root) as records:
        if not show and kernel is not None and name not in records.names():
            raise ArgumentError(f"nothing is known of a kernel {kernel} in {root}")
        if show:
            _show(root, kernel, known_problems(records, name, digest), as_json)
        elif export is not None:
            _export(records, export, name, digest, as_json)
        else:
            _forget(records, name, digest, yes, as_json)


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
        tuned = entry.tuned_for(opened)
        # In a log a progress bar would be noise.
        watched = not as_json and sys.stderr.isatty()
        try:
            for problem in problems:
                report = tuned.tune(cache, problem, budget, progress=watched, listen=count, force=force)
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
    if as_json:
        print_json({"reports": [_as_json(report) for report in reports], "pictures": drawn})
    else:
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


# --- what is known


def _select(
    entry: CatalogueEntry, problems: list[Problem], cache_dir: Path | None, device: str | None, as_json: bool
) -> None:
    with open_device(device, cache_dir=cache_dir) as opened, ProgramCache(opened, cache_dir) as cache:
        tuned = entry.tuned_for(opened)
        if not problems:
            known = known_problems(tuned.records(cache), tuned.name, opened.fingerprint.digest)
            problems = [one.problem for one in known] or list(entry.problems)
        if not problems:
            raise ArgumentError(f"nothing is known of {entry.name} yet: give --problem NAME=VALUE,NAME=VALUE")
        found = [(problem, _selection(tuned, cache, problem)) for problem in problems]
        spec = opened.spec
    failed = any(isinstance(selection, VariantError) for _, selection in found)
    if as_json:
        chosen = [
            {"problem": problem, "error" if isinstance(selection, VariantError) else "selection": selection}
            for problem, selection in found
        ]
        print_json({"device": spec, "kernel": entry.name, "selections": chosen})
    for problem, selection in () if as_json else found:
        if isinstance(selection, VariantError):
            expected, reason = "", str(selection)
        else:
            expected = "" if selection.expected_ms is None else f", about {selection.expected_ms:.4g} ms"
            reason = selection.reason
        print_line(f"{entry.name}  {in_words(problem)}  on {spec}{expected}")
        print_line(f"  {reason}")
    if failed:
        raise typer.Exit(1)


def _selection(tuned: Tuned, cache: ProgramCache, problem: Problem) -> Selection | VariantError:
    try:
        return tuned.select(cache, problem)
    except VariantError as error:
        return error  # other problems may have a variant that runs


def _show(root: Path, kernel: str | None, known: list[KnownProblem], as_json: bool) -> None:
    if as_json:
        print_json({"cache_dir": root, "known": known})
        return
    if not known:
        print_line(f"Nothing is known{f' of {kernel}' if kernel else ''} from tuning in {root}.")
        return
    numbers = ("ms", "samples", "variants", "failures")
    for name in dict.fromkeys(one.device_name for one in known):
        print_line(name)
        optional = ("measured", "samples", "variants")
        made = Table("kernel", "problem", "variant in use", *numbers, "measured", right=numbers, optional=optional)
        for one in (one for one in known if one.device_name == name):
            variant = "none" if one.variant is None else in_words(one.variant) + (", pinned" if one.pinned else "")
            made.add_row(
                escape(one.tuned),
                escape(in_words(one.problem)),
                escape(variant),
                "-" if one.milliseconds is None else f"{one.milliseconds:.4g}",
                str(one.samples),
                str(one.measured + sum(one.failures.values())),
                ", ".join(f"{count} {failure}" for failure, count in sorted(one.failures.items())) or "-",
                ago(one.newest),
            )
        print_table(made)


def _export(records: Records, file: Path, name: str | None, digest: str | None, as_json: bool) -> None:
    count = records.export(file, name, digest)
    _print({"file": file, "records": count}, f"{_count(count)} written to {file}", as_json)


def _import(root: Path, file: Path, as_json: bool) -> None:
    with Records(root) as records:
        count = records.load(file)
    text = f"{_count(count)} imported from {file}" if count else f"{file} holds nothing new"
    _print({"file": file, "changed": count}, text, as_json)


def _forget(records: Records, name: str | None, digest: str | None, yes: bool, as_json: bool) -> None:
    if not yes:
        if as_json:
            raise ArgumentError("--forget with --json does not ask: give --yes as well")
        known = known_problems(records, name, digest)
        held = sum(one.measured + sum(one.failures.values()) for one in known)
        if not agreed(f"Remove {_count(held)} of {name or 'all kernels'}?"):
            print_line("Nothing was removed.")
            raise typer.Exit(1)
    count = records.forget(name, digest)
    _print({"removed": count}, f"{_count(count)} removed", as_json)


def _print(data: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(data)
    else:
        print_line(text)


def _count(records: int) -> str:
    return f"{records:,} record{'' if records == 1 else 's'}"
