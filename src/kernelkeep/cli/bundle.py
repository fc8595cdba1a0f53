"""`kernelkeep export` and `kernelkeep import`: programs of a cache folder in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..fleet.bundle import BundleReport, export_bundle, import_bundle
from ..observe.inventory import device_folders, folders_of
from .common import AsJson, CacheDir, FolderSpec, SigningKey, cache_root, print_json, print_line

_NoTuning = Annotated[bool, typer.Option("--no-tuning", help="Leave out tuning results.")]
_NoDriverCache = Annotated[bool, typer.Option("--no-driver-cache", help="Leave out the drivers' own caches.")]


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE.kkb", help="The bundle to write.")],
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="NAME", help="Only programs of this name; several times for several."),
    ] = None,
    no_tuning: _NoTuning = False,
    no_driver_cache: _NoDriverCache = False,
    key: SigningKey = None,
    cache_dir: CacheDir = None,
    device: FolderSpec = None,
    as_json: AsJson = False,
) -> None:
    """Write programs, tuning results and drivers' caches to one file, signed where there is a key."""
    root = cache_root(cache_dir)
    only = folders_of(device, cache_dir=cache_dir, with_architectures=True)
    report = export_bundle(
        root,
        file,
        names=name,
        devices=only,
        tuning=not no_tuning,
        driver_cache=not no_driver_cache,
        signing_key=key,
    )
    _show(report, as_json)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE.kkb", help="The bundle to read.")],
    allow_unsigned: Annotated[
        bool,
        typer.Option("--allow-unsigned", help="Also without a signature: what is in a bundle is executed."),
    ] = False,
    no_tuning: _NoTuning = False,
    no_driver_cache: _NoDriverCache = False,
    key: SigningKey = None,
    cache_dir: CacheDir = None,
    device: FolderSpec = None,
    as_json: AsJson = False,
) -> None:
    """Add what is in a bundle to the cache folder. Ends with 1 if it is damaged or not trusted."""
    root = cache_root(cache_dir)
    only = "all" if device is None else device_folders(device, cache_dir=cache_dir, with_architectures=True)
    report = import_bundle(
        root,
        file,
        devices=only,
        tuning=not no_tuning,
        driver_cache=not no_driver_cache,
        signing_key=key,
        allow_unsigned=allow_unsigned,
    )
    _show(report, as_json)


def _show(report: BundleReport, as_json: bool) -> None:
    if as_json:
        print_json(report)
    else:
        print_line(str(report))
