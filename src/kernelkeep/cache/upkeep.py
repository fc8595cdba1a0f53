"""Upkeep of a whole cache folder, without a device: list, count, prune, verify, clear.

Every function takes the cache folder (`kernelkeep.settings.cache_dir()`) and, in `only`, the names of the GPU folders to
look at, by default all of them. Other processes may use the cache meanwhile; they compile again what is removed. A cache folder
that another user could have written to is an `OSError` that says so.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ..activity.diary import FILE_NAME, forget_records
from ..errors import ArgumentError
from ..storage.private import Trust, default_trust
from .entry_files import Stored, Use, look_at, slug
from .gpu_folder import GpuFolder
from .stats import STATS_FILE, CacheStats, read_file, read_guests, typed_counts
from .tiers.disk import Pruned, gpu_folders, room_for_entries

_DAY_SECONDS = 86400.0
_DIGEST_START = re.compile(r"[0-9a-f]{6,64}\Z")


class _Fingerprint(Protocol):
    """What is needed here of a device's fingerprint."""

    @property
    def folder(self) -> str: ...


class FolderSurvey(msgspec.Struct, frozen=True):
    """How much is kept for one GPU, driver and compiler. `driver_bytes` is its foreign cache folder."""

    folder: str
    entries: int
    bytes: int
    driver_bytes: int
    set_aside: int
    last_used: float | None
    fingerprint: dict[str, Any]

    @property
    def is_driver_cache(self) -> bool:
        """Whether only a driver keeps files here: no program of a device was ever saved."""
        return not self.entries and not self.set_aside and not self.fingerprint


class CacheSurvey(msgspec.Struct, frozen=True):
    """What a cache folder holds, and the statistics of all processes that used it.

    `guests` has the part of other libraries in them (`kernelkeep.guests`), by name.
    """

    root: Path
    folders: tuple[FolderSurvey, ...]
    lifetime: CacheStats
    guests: dict[str, CacheStats] = {}


class Verified(msgspec.Struct, frozen=True):
    """What a check of every entry found. With `repaired`, the damaged ones were set aside."""

    entries: int
    bytes: int
    damaged: tuple[Stored, ...]
    repaired: bool

    @property
    def ok(self) -> bool:
        """Whether no damage is left."""
        return self.repaired or not self.damaged


def _checked_folders(root: Path, only: Collection[str] | None, trust: Trust | None = None) -> list[GpuFolder]:
    """The GPUs' folders of a cache folder; none where it does not exist. `NotPrivate` where others may write to it."""
    trust = trust or default_trust()
    try:
        trust.check_folder(root)
    except FileNotFoundError:
        return []
    return gpu_folders(root, only, trust)


def list_entries(root: Path, only: Collection[str] | None = None) -> Iterator[Stored]:
    """Every entry, verified."""
    for folder in _checked_folders(root, only):
        yield from folder.scan()


def is_key(text: str) -> bool:
    """Whether a text is the beginning of a key: six or more hexadecimal digits."""
    return bool(_DIGEST_START.match(text))


def find_entries(root: Path, wanted: str, only: Collection[str] | None = None) -> list[Stored]:
    """The entries saved under a name, or whose key starts with these six or more hexadecimal digits."""
    by_key = is_key(wanted)
    plain = slug(wanted)
    found = []
    for folder in _checked_folders(root, only):
        for path in folder.files():
            name, _, rest = path.stem.rpartition("-")
            if not (name == plain or (by_key and rest.startswith(wanted))):
                continue
            stored = look_at(path, folder.trust)
            # File names are shortened and simplified; the name in the entry decides, where it can be read.
            if stored.facts is None or stored.facts.name == wanted or (by_key and rest.startswith(wanted)):
                found.append(stored)
    return found


def survey_root(root: Path, only: Collection[str] | None = None) -> CacheSurvey:
    """Count what is kept. The statistics are those of the whole cache folder, also with `only`."""
    folders = tuple(_survey(folder) for folder in _checked_folders(root, only))
    sums = read_file(root / STATS_FILE)
    typed = typed_counts(sums)
    lifetime = CacheStats(
        on_disk=sum(folder.entries for folder in folders),
        disk_bytes=sum(folder.bytes + folder.driver_bytes for folder in folders),
        **typed,
    )
    guests = {name: CacheStats(**typed_counts(counts)) for name, counts in read_guests(root / STATS_FILE).items()}
    return CacheSurvey(root, folders, lifetime, guests)


def _survey(folder: GpuFolder) -> FolderSurvey:
    manifest = folder.manifest.read()
    entries, size = folder.manifest.count()
    used, fingerprint = manifest.get("last_used"), manifest.get("fingerprint")
    return FolderSurvey(
        folder=folder.path.name,
        entries=entries,
        bytes=size,
        driver_bytes=folder.foreign.nbytes(),
        set_aside=folder.count_aside(),
        last_used=float(used) if isinstance(used, int | float) else None,
        fingerprint=fingerprint if isinstance(fingerprint, dict) else {},
    )


def verify_root(root: Path, *, repair: bool = False, only: Collection[str] | None = None) -> Verified:
    """Check every entry. With `repair`, set the damaged ones aside, where the last few are kept, and count again."""
    number = size = 0
    damaged = []
    for folder in _checked_folders(root, only):
        for stored in folder.scan():
            number, size = number + 1, size + stored.nbytes
            if stored.facts is None:
                damaged.append(stored)
                if repair:
                    folder.set_file_aside(stored.path)
        if repair:
            folder.recount()
    return Verified(number, size, tuple(damaged), repair)


def clear_root(root: Path, only: Collection[str] | None = None) -> Pruned:
    """Remove the folders of all GPUs with their foreign cache folders, and without `only` the diary. The statistics stay.

    Returns what was removed.
    """
    went = _remove(_checked_folders(root, only))
    return went if only is not None else _without_diary(root, went, None)


def _without_diary(root: Path, went: Pruned, before: float | None, trust: Trust | None = None) -> Pruned:
    """Remove the diary's records made before a time, or all of it; what cannot be removed is `left`."""
    try:
        forget_records(root, before, trust)
    except OSError as error:
        return msgspec.structs.replace(went, left=(*went.left, f"{root / FILE_NAME}: {error.strerror or error}"))
    return went


def _remove(folders: Collection[GpuFolder]) -> Pruned:
    removed = [folder.remove() for folder in folders]
    return Pruned(
        sum(one.entries for one in removed),
        sum(one.bytes for one in removed),
        tuple(folder.path.name for folder, one in zip(folders, removed, strict=True) if not one.left),
        tuple(path for one in removed for path in one.left),
        tuple(folder.path.name for folder, one in zip(folders, removed, strict=True) if one.foreign_held),
    )


def prune_root(
    root: Path,
    max_age_days: float | None = None,
    max_bytes: int | None = None,
    gone: Callable[[GpuFolder], bool] | None = None,
    *,
    in_use: Path | None = None,
    only: Collection[str] | None = None,
    dry_run: bool = False,
    trust: Trust | None = None,
) -> Pruned:
    """Remove folders that `gone` names, entries not used for `max_age_days`, and the oldest down to `max_bytes`.

    The folder `in_use` is never gone, and its foreign cache folder, which is open, stays. Without `only`, records of the diary
    that are older than `max_age_days` go too. A `dry_run` removes nothing and returns what would be removed.
    """
    for name, value in (("max_age_days", max_age_days), ("max_bytes", max_bytes)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0):
            raise ArgumentError(f"{name} must be a number that is 0 or more, got {value!r}")
    before = None
    if max_age_days is not None and not math.isinf(max_age_days):
        before = max(0.0, time.time() - max_age_days * _DAY_SECONDS)
    folders = _checked_folders(root, only, trust)
    leaving = [f for f in folders if gone is not None and f.path != in_use and gone(f)]
    staying = [f for f in folders if f not in leaving]
    if dry_run:
        counts = [folder.manifest.count() for folder in leaving]
        size = sum(held for _, held in counts) + sum(folder.foreign.nbytes() for folder in leaving)
        left = Pruned(sum(number for number, _ in counts), size, tuple(folder.path.name for folder in leaving))
    else:
        left = _remove(leaving)
    prune = _would_prune if dry_run else _prune
    number, size = prune(staying, before, max_bytes, in_use)
    pruned = Pruned(left.entries + number, left.bytes + size, left.folders, left.left, left.in_use)
    if before is None or only is not None or dry_run:
        return pruned
    return _without_diary(root, pruned, before, trust)


def is_gone_from(here: Mapping[str, Collection[_Fingerprint]]) -> Callable[[GpuFolder], bool]:
    """A function that says of a GPU's folder whether this machine used it and no longer has that GPU, driver or compiler.

    `here` has the fingerprints of this machine's devices by backend. A backend that is missing in it, because it is not
    installed or its driver is down, is not taken for gone.
    """
    names = {backend: {found.folder for found in all_of_it} for backend, all_of_it in here.items()}

    def is_gone(folder: GpuFolder) -> bool:
        backend = folder.path.name.partition("_")[0]
        return folder.manifest.used_here and backend in names and folder.path.name not in names[backend]

    return is_gone


def _prune(
    folders: list[GpuFolder], before: float | None, max_bytes: int | None, in_use: Path | None
) -> tuple[int, int]:
    number = size = 0
    if before is not None:
        for folder in folders:
            went = folder.remove_entries(sorted(use for use in folder.uses() if use.used < before))
            number, size = number + went[0], size + went[1]
            if folder.path != in_use:
                size += folder.foreign.prune(before)
    if max_bytes is not None and _held(folders) > max_bytes:
        # Nothing is removed because of what a manifest says, which may be wrong: count first.
        uses = sorted(((use, folder) for folder in folders for use in folder.recount()), key=lambda pair: pair[0])
        entries = sum(use.nbytes for use, _ in uses)
        size += _prune_foreign(folders, entries, max_bytes, in_use)
        room = room_for_entries(max_bytes, sum(folder.foreign.nbytes() for folder in folders))
        oldest = _oldest(uses, None, entries - room)
        for folder in folders:
            went = folder.remove_entries(use for use, where in oldest if where is folder)
            number, size = number + went[0], size + went[1]
    return number, size


def _oldest(uses: list[tuple[Use, GpuFolder]], before: float | None, excess_bytes: int) -> list[tuple[Use, GpuFolder]]:
    """The first of `uses` that were not used since `before`, or that are needed to free `excess_bytes`."""
    chosen = []
    for use, folder in uses:
        if not (excess_bytes > 0 or (before is not None and use.used < before)):
            break
        chosen.append((use, folder))
        excess_bytes -= use.nbytes
    return chosen


def _held(folders: list[GpuFolder]) -> int:
    return sum(folder.manifest.count()[1] + folder.foreign.nbytes() for folder in folders)


def _prune_foreign(folders: list[GpuFolder], entries: int, max_bytes: int, in_use: Path | None) -> int:
    """If all together is too much, remove foreign cache folders that were not used for a day; how many bytes went."""
    size = 0
    excess = entries + sum(folder.foreign.nbytes() for folder in folders) - max_bytes
    for folder in sorted(folders, key=lambda folder: folder.foreign.last_used() or 0.0):
        if size < excess and folder.path != in_use:
            size += folder.foreign.prune(time.time() - _DAY_SECONDS)
    return size


def _would_prune(
    folders: list[GpuFolder], before: float | None, max_bytes: int | None, in_use: Path | None
) -> tuple[int, int]:
    size = foreign = 0
    for folder in folders:
        held, used = folder.foreign.nbytes(), folder.foreign.last_used()
        if before is not None and folder.path != in_use and used is not None and used < before:
            size += held
        else:
            foreign += held
    uses = sorted(((use, folder) for folder in folders for use in folder.uses()), key=lambda pair: pair[0])
    entries = sum(use.nbytes for use, _ in uses)
    excess = -1 if max_bytes is None else entries - room_for_entries(max_bytes, foreign)
    oldest = _oldest(uses, before, excess)
    return len(oldest), size + sum(use.nbytes for use, _ in oldest)
