"""`kernelkeep stats`: how much is kept, and what all processes did, other libraries among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape

from ..cache.stats import CacheStats, human_bytes
from ..cache.upkeep import survey_root
from ..html.numbers import share
from .cache import chosen_folders
from .common import AsJson, CacheDir, FolderSpec, Table, print_json, print_line, print_table, used_ago


def stats(cache_dir: CacheDir = None, device: FolderSpec = None, as_json: AsJson = False) -> None:
    """Show how much is kept, and the statistics of all processes."""
    root, only = chosen_folders(cache_dir, device)
    survey = survey_root(root, only)
    sums = survey.lifetime
    if as_json:
        lifetime = {name: getattr(sums, name) for name in sums.__struct_fields__}
        # Nothing is known of the memory of processes that have ended.
        for name in ("programs", "memory_bytes", "over_bound"):
            del lifetime[name]
        lifetime["hit_rate"] = sums.hit_rate
        guests = {name: _guest_as_json(counts) for name, counts in survey.guests.items()}
        print_json({"cache_dir": root, "folders": survey.folders, "lifetime": lifetime, "guests": guests})
        return
    numbers = ("programs", "size", "driver's cache", "set aside")
    print_line(f"kept in {root}{'' if survey.folders else ': nothing'}")
    folders = "GPU, driver and compiler"
    optional = ("set aside", "last used", "driver's cache")
    kept = Table(folders, *numbers, "last used", right=numbers, names=(folders,), optional=optional)
    for folder in survey.folders:
        sizes = (
            str(folder.entries),
            human_bytes(folder.bytes),
            human_bytes(folder.driver_bytes),
            str(folder.set_aside),
        )
        named = f"driver's own: {folder.folder}" if folder.is_driver_cache else folder.folder
        kept.add_row(escape(named), *sizes, used_ago(folder.last_used))
    if survey.folders:
        print_table(kept)
        print_line()
    done = Table("all processes so far", "", right=("",))
    for label, value in (
        ("hits in memory", f"{sums.hits_memory:,}"),
        ("hits on disk", f"{sums.hits_disk:,}"),
        ("remote hits", f"{sums.hits_remote:,}"),
        ("misses", f"{sums.misses:,}"),
        ("hit rate", share(sums.hit_rate)),
        ("compiles", f"{sums.compiles:,}"),
        ("compiles that failed", f"{sums.compile_errors:,}"),
        ("compile time spent", f"{sums.compile_seconds:,.3f} s"),
        ("compile time saved", f"{sums.compile_seconds_saved:,.3f} s"),
        ("waits for another's compile", f"{sums.waits:,}"),
        ("saved again after use", f"{sums.ripened:,}"),
        ("evictions from memory", f"{sums.evictions:,}"),
        ("corrupt entries set aside", f"{sums.corrupt_entries:,}"),
        *sums.remote_rows(),
    ):
        done.add_row(label, value)
    print_table(done)
    if survey.guests:
        print_line()
        print_table(_guests(survey.guests))


def _guests(guests: Mapping[str, CacheStats]) -> Table:
    """What other libraries did: part of the sums above."""
    numbers = ("memory hits", "disk hits", "remote hits", "misses", "hit rate", "puts", "waits", "damaged", "saved")
    optional = ("damaged", "waits", "memory hits", "hit rate", "remote hits")
    table = Table("guests among them", *numbers, right=numbers, names=("guests among them",), optional=optional)
    for name, one in guests.items():
        counts = (one.hits_memory, one.hits_disk, one.hits_remote, one.misses)
        table.add_row(
            escape(name),
            *(f"{count:,}" for count in counts),
            share(one.hit_rate),
            f"{_puts(one):,}",
            f"{one.waits:,}",
            f"{one.corrupt_entries:,}",
            f"{one.compile_seconds_saved:,.1f} s",
        )
    return table


def _puts(guest: CacheStats) -> int:
    return guest.compiles + guest.ripened


def _guest_as_json(guest: CacheStats) -> dict[str, Any]:
    unknown = ("programs", "over_bound", "on_disk", "memory_bytes", "disk_bytes", "evictions", "compile_errors")
    known = {name: getattr(guest, name) for name in guest.__struct_fields__ if name not in unknown}
    return known | {"puts": _puts(guest), "hit_rate": guest.hit_rate}
