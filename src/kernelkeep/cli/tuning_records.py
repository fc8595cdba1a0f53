"""What tuning found: shown, selected from, moved and removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from ..cache.program_cache import ProgramCache
from ..devices.registry import open_device
from ..errors import ArgumentError, VariantError
from ..kernels.catalogue import CatalogueEntry
from ..observe.tuning_overview import KnownProblem, known_problems
from ..variants.records import Records
from ..variants.select import Selection
from ..variants.tuned import Tuned
from ..variants.values import in_words
from .common import Table, ago, agreed, print_heading, print_json, print_line, print_table

Problem = dict[str, Any]


def select_variants(
    entry: CatalogueEntry, problems: list[Problem], cache_dir: Path | None, device: str | None, as_json: bool
) -> None:
    """Say which variant would run for each problem, and why."""
    with open_device(device, cache_dir=cache_dir) as opened, ProgramCache(opened, cache_dir) as cache:
        tuned = entry.tuned_for(opened, None)
        if not problems:
            known = known_problems(tuned.records(cache), tuned.name, opened.fingerprint.digest)
            problems = [one.problem for one in known] or list(entry.problems)
        if not problems:
            raise ArgumentError(f"nothing is known of {entry.name} yet: give --problem NAME=VALUE,NAME=VALUE")
        found = [(problem, _selection(entry.tuned_for(opened, problem), cache, problem)) for problem in problems]
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


def show_records(root: Path, kernel: str | None, known: list[KnownProblem], as_json: bool) -> None:
    """Print what is known, a table for each device."""
    if as_json:
        print_json({"cache_dir": root, "known": known})
        return
    if not known:
        print_line(f"Nothing is known{f' of {kernel}' if kernel else ''} from tuning in {root}.")
        return
    numbers = ("ms", "samples", "variants", "failures")
    for name in dict.fromkeys(one.device_name for one in known):
        print_heading(name)
        optional = ("measured", "samples", "variants")
        made = Table(
            "kernel",
            "problem",
            "variant in use",
            *numbers,
            "measured",
            right=numbers,
            names=("kernel",),
            optional=optional,
        )
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


def export_records(records: Records, file: Path, name: str | None, digest: str | None, as_json: bool) -> None:
    """Write what is known to a file of JSON lines."""
    count = records.export(file, name, digest)
    _print({"file": file, "records": count}, f"{counted(count)} written to {file}", as_json)


def import_records(root: Path, file: Path, as_json: bool) -> None:
    """Read such a file."""
    with Records(root) as records:
        count = records.load(file)
    text = f"{counted(count)} imported from {file}" if count else f"{file} holds nothing new"
    _print({"file": file, "changed": count}, text, as_json)


def forget_records(records: Records, name: str | None, digest: str | None, yes: bool, as_json: bool) -> None:
    """Remove what is known, after a question."""
    if not yes:
        if as_json:
            raise ArgumentError("--forget with --json does not ask: give --yes as well")
        known = known_problems(records, name, digest)
        held = sum(one.measured + sum(one.failures.values()) for one in known)
        if not agreed(f"Remove {counted(held)} of {name or 'all kernels'}?"):
            print_line("Nothing was removed.")
            raise typer.Exit(1)
    count = records.forget(name, digest)
    _print({"removed": count}, f"{counted(count)} removed", as_json)


def _print(data: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        print_json(data)
    else:
        print_line(text)


def counted(records: int) -> str:
    """A number of records, in words."""
    return f"{records:,} record{'' if records == 1 else 's'}"
