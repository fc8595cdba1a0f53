"""`kernelkeep sync push` and `pull`: whole cache folders to and from a shared store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import typer

from ..cache.stats import human_bytes
from ..cache.sync import SyncReport, pull_cache, push_cache
from ..devices.registry import open_device
from ..observe.inventory import device_folders
from ..observe.tuning_overview import records_in
from ..variants.records import Records
from ..variants.sharing import share_with, take_from
from .common import AsJson, CacheDir, DeviceSpec, RemoteUrl, cache_root, print_json, print_line
from .complaint import complain

sync = typer.Typer(rich_markup_mode=None, help="Copy the cache folder to or from a shared store.")


@sync.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    """Copy the cache folder to or from a shared store."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


@sync.command()
def push(
    remote: RemoteUrl = None, cache_dir: CacheDir = None, device: DeviceSpec = None, as_json: AsJson = False
) -> None:
    """Store every program of the cache folder that the store does not have, signed. Ends with 1 if any is damaged."""
    _copy(push_cache, "stored", remote, cache_dir, device, as_json)


@sync.command()
def pull(
    remote: RemoteUrl = None, cache_dir: CacheDir = None, device: DeviceSpec = None, as_json: AsJson = False
) -> None:
    """Bring every program of the store that the cache folder does not have, verified. Ends with 1 if any is refused."""
    _copy(pull_cache, "brought", remote, cache_dir, device, as_json)


def _copy(
    copy: Callable[..., list[SyncReport]], verb: str, remote: Any, cache_dir: Any, device: str | None, as_json: bool
) -> None:
    root = cache_root(cache_dir)
    only = None if device is None else device_folders(device, cache_dir=root)
    reports = copy(root, remote, folders=only, progress=not as_json)
    tuning, trusted = _copy_tuning(copy is push_cache, root, remote, device)
    if as_json:
        stores = [msgspec.structs.asdict(report) for report in reports]
        print_json({"cache_dir": root, "stores": stores, "tuning": tuning})
    for location, count in () if as_json else tuning.items():
        if count:
            print_line(f"{location}: {count} tuning record{'' if count == 1 else 's'} {verb}")
    for report in reports:
        if not as_json:
            noun = "program" if report.copied == 1 else "programs"
            folders = f"{len(report.folders)} GPU folder{'' if len(report.folders) == 1 else 's'}"
            print_line(
                f"{report.location}: {report.copied} {noun} {verb}, {human_bytes(report.bytes)}, "
                f"{report.present} already there, in {folders}"
            )
        for reason in report.refused:
            complain(f"not {verb}: {reason}")
    if not trusted or not all(report.ok for report in reports):
        raise typer.Exit(1)


def _copy_tuning(push: bool, root: Path, remote: Any, device: str | None) -> tuple[dict[str, int], bool]:
    """Tuning results travel with the programs: how many, by the store's location; and whether none was refused."""
    digest = None
    if device is not None:
        with open_device(device, cache_dir=root) as opened:
            digest = opened.fingerprint.digest
    if push:
        with records_in(root) as records:
            shared = share_with(remote, records, device=digest)
        return {one.location: found.records for one, found in shared}, True
    with Records(root) as records:
        taken = take_from(remote, records, device=digest)
    for one, found in taken:
        for name, reason in found.refused:
            complain(f"not brought: {one.location}/{name}: {reason}")
    return {one.location: found.changed for one, found in taken}, not any(found.refused for _, found in taken)
