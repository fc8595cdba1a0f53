"""`kernelkeep verify`: every byte in the cache folder, or with `--remote` in shared stores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ..cache.remote_tiers import resolve_remotes
from ..cache.stats import human_bytes
from ..cache.upkeep import verify_root
from ..errors import ArgumentError
from ..escaping import escaped
from ..observe.remote_check import RemoteCheck, check_remote
from .cache import chosen_folders, count_programs, stored_as_json
from .common import AsJson, CacheDir, FolderSpec, print_json, print_line


def verify(
    urls: Annotated[
        list[str] | None,
        typer.Argument(metavar="[URL]...", help="With --remote: the stores to check, instead of $KERNELKEEP_REMOTE."),
    ] = None,
    remote: Annotated[
        bool, typer.Option("--remote", help="Check shared stores, and list what is refused here and why.")
    ] = False,
    signing_key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --remote: a key file, beside the keys of `kernelkeep keys`."),
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Set damaged entries aside and count again.")] = False,
    cache_dir: CacheDir = None,
    device: FolderSpec = None,
    as_json: AsJson = False,
) -> None:
    """Check every byte of every entry. Ends with 1 if one is damaged and not repaired, or refused."""
    if remote:
        if repair:
            raise ArgumentError("--repair works on the cache folder, not on shared stores; leave out one of the two")
        _verify_remote(urls, signing_key, as_json)
        return
    if urls or signing_key is not None:
        raise ArgumentError("an address and --signing-key go with --remote: kernelkeep verify --remote redis://host/0")
    _verify_folder(cache_dir, device, repair, as_json)


def _verify_folder(cache_dir: Path | None, device: str | None, repair: bool, as_json: bool) -> None:
    root, only = chosen_folders(cache_dir, device)
    outcome = verify_root(root, repair=repair, only=only)
    if as_json:
        damaged = [stored_as_json(stored) for stored in outcome.damaged]
        counts = {"entries": outcome.entries, "bytes": outcome.bytes, "repaired": outcome.repaired}
        print_json({"cache_dir": root, "ok": outcome.ok, **counts, "damaged": damaged})
    else:
        for stored in outcome.damaged:
            done = ", set aside" if repair else ""
            print_line(f"{escaped(stored.path.relative_to(root))}: {escaped(stored.damage)}{done}")
        checked = f"{count_programs(outcome.entries)}, {human_bytes(outcome.bytes)}, checked in {root}"
        print_line(f"{checked}: {len(outcome.damaged)} damaged" if outcome.damaged else f"{checked}: all are whole")
    if not outcome.ok:
        raise typer.Exit(1)


def _verify_remote(urls: list[str] | None, signing_key: Path | None, as_json: bool) -> None:
    remotes = resolve_remotes(urls or None, signing_key=signing_key, must_exist=True)
    if not remotes:
        raise ArgumentError("--remote needs an address such as redis://host/0 behind it, or in KERNELKEEP_REMOTE")
    outcomes = [check_remote(one) for one in remotes]
    ok = all(outcome.ok for outcome in outcomes)
    if as_json:
        found = [msgspec.to_builtins(outcome) | {"ok": outcome.ok} for outcome in outcomes]
        print_json({"ok": ok, "remotes": found})
    else:
        for outcome in outcomes:
            _print_remote(outcome)
    if not ok:
        raise typer.Exit(1)


def _print_remote(outcome: RemoteCheck) -> None:
    for refused in outcome.refused:
        print_line(f"{escaped(refused.name)}: {refused.kind}: {escaped(refused.reason)}")
    objects = f"{outcome.objects:,} object{'' if outcome.objects == 1 else 's'}"
    where = f"{outcome.location}, namespace {outcome.namespace}" if outcome.namespace else outcome.location
    result = f"{len(outcome.refused)} refused" if outcome.refused else "all are trusted"
    others = f"; {outcome.others:,} more are not kernelkeep's, and nobody uses them" if outcome.others else ""
    print_line(f"{objects}, {human_bytes(outcome.bytes)}, checked in {where}: {result}{others}")
