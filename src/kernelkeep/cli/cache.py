"""`kernelkeep ls`, `show`, `prune` and `clear`: the cache folder itself.

They need no device and load no GPU library, unless `--device` or `--gone` asks which folders belong to a device.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..cache.entry_files import Stored
from ..cache.stats import human_bytes
from ..cache.tiers.disk import Pruned
from ..cache.upkeep import (
    clear_root,
    find_entries,
    is_gone_from,
    list_entries,
    prune_root,
    survey_root,
)
from ..errors import ArgumentError, KernelKeepError
from ..escaping import escaped
from ..observe.inventory import folders_of
from ..words import did_you_mean
from .common import (
    AsJson,
    CacheDir,
    FolderSpec,
    Table,
    agreed,
    cache_root,
    print_fact,
    print_heading,
    print_json,
    print_line,
    print_table,
    size_from,
    used_ago,
)
from .complaint import complain


def ls(cache_dir: CacheDir = None, device: FolderSpec = None, as_json: AsJson = False) -> None:
    """List the programs on disk. Each is verified."""
    root, only = chosen_folders(cache_dir, device)
    found = list(list_entries(root, only))
    if as_json:
        print_json({"cache_dir": root, "entries": [stored_as_json(stored) for stored in found]})
        return
    if not found:
        print_line(f"No program is kept in {root}{'' if device is None else f' for {device}'}.")
        return
    numbers = ("size", "compile ms", "saved again")
    texts, optional = ("name", "kernels"), ("saved again", "compile ms", "kernels", "last used")
    tables: dict[str, Table] = {}
    for stored in found:
        if stored.folder not in tables:
            columns = ("name", "key", "kernels", *numbers, "last used")
            tables[stored.folder] = Table(*columns, right=numbers, names=texts, optional=optional)
        tables[stored.folder].add_row(*_row(stored))
    for folder, made in tables.items():
        made.alike = list(tables.values())
        print_heading(folder)
        print_table(made)
        print_line()
    damaged = sum(stored.facts is None for stored in found)
    print_line(f"{count_programs(len(found))}, {human_bytes(sum(stored.nbytes for stored in found))}, in {root}")
    if damaged:
        print_line(f"{damaged} damaged: `kernelkeep verify` says what is wrong, with --repair it sets them aside")


def _row(stored: Stored) -> tuple[str, ...]:
    facts = stored.facts
    if facts is None:
        return (
            escape(_label(stored)),
            stored.digest[:12],
            "[red]damaged[/]",
            human_bytes(stored.nbytes),
            "-",
            "-",
            "-",
        )
    kernels = ", ".join(facts.kernels[:4]) + (f" and {len(facts.kernels) - 4} more" if len(facts.kernels) > 4 else "")
    return (
        escape(facts.name),
        stored.digest[:12],
        escape(kernels),
        human_bytes(stored.nbytes),
        f"{facts.compile_seconds * 1e3:,.1f}",
        str(facts.ripened),
        used_ago(stored.last_used),
    )


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A program's name, or the first six or more digits of its key.")
    ],
    cache_dir: CacheDir = None,
    device: FolderSpec = None,
    as_json: AsJson = False,
) -> None:
    """Show everything about a program. Ends with 1 if there is no such program."""
    root, only = chosen_folders(cache_dir, device)
    found = find_entries(root, name, only)
    if not found:
        names = {stored.facts.name for stored in list_entries(root, only) if stored.facts is not None}
        hint = did_you_mean(name, sorted(names))
        raise KernelKeepError(f"no program named {name!r} is kept in {root}{hint}; `kernelkeep ls` lists what is kept")
    if as_json:
        print_json({"cache_dir": root, "entries": [stored_as_json(stored) for stored in found]})
        return
    for number, stored in enumerate(found):
        if number:
            print_line()
        for label, value in _facts(stored):
            if label == "file":  # to be copied as a whole
                print_line(f"{label:<15} {escaped(value)}")
            else:
                print_fact(label, value)


def _facts(stored: Stored) -> list[tuple[str, str]]:
    rows = [("name", _label(stored)), ("key", stored.digest), ("folder", stored.folder), ("file", str(stored.path))]
    rows.append(("size on disk", human_bytes(stored.nbytes)))
    facts = stored.facts
    if facts is None:
        return [*rows, ("damaged", stored.damage)]
    rows += [
        ("program size", human_bytes(facts.payload_bytes)),
        ("kernels", ", ".join(facts.kernels)),
        ("compiled in", f"{facts.compile_seconds * 1e3:,.1f} ms"),
        ("compiled on", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(facts.created))),
        ("by kernelkeep", facts.version),
        *([("compiler", facts.compiler)] if facts.compiler else []),
        ("last used", used_ago(stored.last_used)),
    ]
    if facts.ripened:
        rows.append(
            ("saved again", f"{facts.ripened:,} {'time' if facts.ripened == 1 else 'times'}, after first launches")
        )
    return rows + [("key field", f"{label}: {value}") for label, value in facts.key.fields.items()]


def prune(
    max_age_days: Annotated[
        float, typer.Option(metavar="DAYS", help="Remove what was not used for so many days.")
    ] = 30,
    max_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Then remove the least recently used down to 500M, 2G, …")
    ] = None,
    gone: Annotated[bool, typer.Option("--gone", help="Also remove GPUs and drivers that are no longer here.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, print what would be removed.")] = False,
    cache_dir: CacheDir = None,
    device: FolderSpec = None,
    as_json: AsJson = False,
) -> None:
    """Remove programs that were not used for a while."""
    most = None if max_bytes is None else size_from(max_bytes)
    root, only = chosen_folders(cache_dir, device)
    is_gone = None
    if gone:
        from ..devices.registry import fingerprints_here

        is_gone = is_gone_from(fingerprints_here(cache_dir))
    went = prune_root(root, max_age_days, most, is_gone, only=only, dry_run=dry_run)
    if as_json:
        print_json({"cache_dir": root, "dry_run": dry_run, "pruned": went})
        _fail_if_something_stays(went)
        return
    for folder in went.folders:
        print_line(f"{escaped(folder)}: no longer here")
    print_line(
        f"{count_programs(went.entries)}, {human_bytes(went.bytes)}, {'would be removed' if dry_run else 'removed'} from {root}"
    )
    size = "no limit of size (--max-bytes sets one)" if most is None else f"at most {human_bytes(most)} (--max-bytes)"
    print_line(f"limits: unused for {max_age_days:g} days (--max-age-days), {size}")
    _fail_if_something_stays(went)


def clear(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    cache_dir: CacheDir = None,
    device: FolderSpec = None,
    as_json: AsJson = False,
) -> None:
    """Remove every program, the drivers' own files and the diary in the cache folder. The statistics stay.

    Ends with 1 if something could not be removed.
    """
    root, only = chosen_folders(cache_dir, device)
    if not yes:
        if as_json:
            raise ArgumentError("--json cannot ask for confirmation; add --yes")
        held = survey_root(root, only).lifetime
        if not agreed(f"Remove {count_programs(held.on_disk)}, {human_bytes(held.disk_bytes)}, from {root}?"):
            print_line("Nothing was removed.")
            raise typer.Exit(1)
    went = clear_root(root, only)
    if as_json:
        print_json({"cache_dir": root, "removed": went})
    else:
        print_line(f"{count_programs(went.entries)}, {human_bytes(went.bytes)}, removed from {root}")
        for folder in went.in_use:
            print_line(f"{escaped(folder)}: the driver's own files stay, because a running process uses them")
    _fail_if_something_stays(went)


def _fail_if_something_stays(went: Pruned) -> None:
    if went.left:
        files = "1 file" if len(went.left) == 1 else f"{len(went.left):,} files and folders"
        complain(f"{files} could not be removed, the first of them {went.left[0]}")
        raise typer.Exit(1)


def chosen_folders(cache_dir: Path | None, device: str | None) -> tuple[Path, frozenset[str] | None]:
    """The cache folder, and the folders in it that belong to the devices; None for all."""
    return cache_root(cache_dir), folders_of(device, cache_dir=cache_dir)


def _label(stored: Stored) -> str:
    """The program's name; of a damaged entry, the one in the file's name."""
    return stored.facts.name if stored.facts else stored.path.stem.removesuffix(f"-{stored.digest}")


def count_programs(entries: int) -> str:
    """A number of programs, for people."""
    return f"{entries:,} program{'' if entries == 1 else 's'}"


def stored_as_json(stored: Stored) -> dict[str, Any]:
    """An entry for `print_json`."""
    facts = stored.facts
    common = {
        "folder": stored.folder,
        "name": _label(stored),
        "digest": stored.digest,
        "path": stored.path,
        "bytes": stored.nbytes,
        "damage": stored.damage or None,
    }
    if facts is None:
        return common
    return common | {
        "language": facts.language,
        "kernels": facts.kernels,
        "payload_bytes": facts.payload_bytes,
        "compile_seconds": facts.compile_seconds,
        "created": facts.created,
        "last_used": stored.last_used,
        "saved_again": facts.ripened,
        "version": facts.version,
        "key": facts.key.fields,
    }
