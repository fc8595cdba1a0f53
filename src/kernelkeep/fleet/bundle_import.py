"""Adding what a bundle holds to a cache folder. Every record was verified before (`bundle_format.py`)."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from ..cache.entry import Entry, Facts
from ..cache.filling import folder_to_fill
from ..cache.gpu_folder import GpuFolder
from ..devices.fingerprint import Fingerprint
from ..errors import ArgumentError
from ..storage.files import Damaged, publish, write_temporary
from ..storage.private import Trust, make_private_folder
from ..variants.record import decode_lines
from ..variants.records import Records
from .bundle_format import EntryHead, FileHead, Item, TuningHead

_COUNT_EVERY = 64
_MOST_DRIVER_BYTES = 1 << 30  # of one driver's cache: drivers bound theirs at 256 MiB


class Importer:
    """Adds the records of one bundle, and counts. Its methods raise `Damaged` and `OSError`."""

    def __init__(
        self, root: Path, trust: Trust, only: Collection[str] | None, *, tuning: bool, driver_cache: bool
    ) -> None:
        self._root, self._trust, self._only = root, trust, only
        self._tuning, self._driver_cache = tuning, driver_cache
        self._driver_bytes: dict[str, int] = {}
        self._opened: dict[str, GpuFolder] = {}
        self._driver_units: dict[str, set[str]] = {}
        self.folders: list[str] = []
        self.entries = self.already_there = self.driver_files = self.tuning_records = 0
        self.skipped: list[str] = []

    def check(self, item: Item) -> None:
        """`Damaged` where a record must not be added, before any is."""
        if isinstance(item.head, FileHead) and item.fingerprint is not None:
            folder = item.fingerprint.folder
            self._driver_bytes[folder] = self._driver_bytes.get(folder, 0) + len(item.data)
            if self._driver_bytes[folder] > _MOST_DRIVER_BYTES:
                raise Damaged(f"the driver's cache for {folder} in it is larger than any driver's")
        if isinstance(item.head, TuningHead):
            try:
                found, bad = decode_lines(io.BytesIO(item.data))
            except ArgumentError as error:
                raise Damaged(f"of the tuning results in it, {error}") from None
            if bad and not found:
                raise Damaged("the tuning results in it cannot be read")

    def add(self, item: Item) -> None:
        """Write a record to the cache folder, unless it is for a GPU that was not asked for."""
        if isinstance(item.head, TuningHead):
            if self._tuning:
                self._add_tuning(item.data)
        elif item.fingerprint is not None and self._only is not None and item.fingerprint.folder not in self._only:
            self._skip(f"{item.fingerprint.folder}: not asked for")
        elif isinstance(item.head, EntryHead) and item.fingerprint is not None and item.entry is not None:
            self._add_entry(self._folder(item.fingerprint), item.entry, item.data)
        elif isinstance(item.head, FileHead) and item.fingerprint is not None and self._driver_cache:
            self._add_driver_file(self._folder(item.fingerprint), item.head.path, item.data)

    def finish(self) -> None:
        """Count what is in the folders now."""
        for folder in self._opened.values():
            folder.recount()

    def _folder(self, fingerprint: Fingerprint) -> GpuFolder:
        name = fingerprint.folder
        if name not in self._opened:
            self._opened[name] = folder_to_fill(self._root, name, fingerprint.facts, self._trust)
            self.folders.append(name)
        return self._opened[name]

    def _add_entry(self, folder: GpuFolder, entry: Entry, data: bytes) -> None:
        digest = entry.facts.key.digest
        known: Entry | None = None
        with contextlib.suppress(Damaged):  # then the bundle's is better
            known = folder.read_entry(digest, entry.facts.name)
        if known is not None and not _is_better(entry.facts, known.facts):
            self.already_there += 1
            return
        folder.write(digest, data, count=False)
        self.entries += 1
        if self.entries % _COUNT_EVERY == 0:  # this process may be killed before it finishes
            folder.recount()

    def _add_driver_file(self, folder: GpuFolder, path: str, data: bytes) -> None:
        """Add a file that is not there. Drivers keep some files in pairs, such as x.bin and x.toc: both are added, or none."""
        name, target = folder.path.name, folder.foreign.path / path
        if name not in self._driver_units:
            self._driver_units[name] = _units_in(folder.foreign.path)
        if _unit(path) in self._driver_units[name] or os.path.lexists(target):
            self._skip(f"{name}: files that the driver's cache here has already")
            return
        make_private_folder(target.parent, self._trust)
        publish(write_temporary(folder.path / "tmp", data), target)
        self.driver_files += 1

    def _skip(self, reason: str) -> None:
        if reason not in self.skipped:
            self.skipped.append(reason)

    def _add_tuning(self, lines: bytes) -> None:
        with Records(self._root, self._trust) as records:
            try:
                self.tuning_records += records.load(io.BytesIO(lines))
            except ArgumentError as error:
                raise Damaged(str(error)) from None


def _is_better(new: Facts, known: Facts) -> bool:
    """More native code, or the same program from another compiler and later."""
    return new.ripened > known.ripened or (new.compiler != known.compiler and new.created > known.created)


def _unit(path: str) -> str:
    """What files that belong together have in common: the path without the suffix."""
    return str(PurePosixPath(path).with_suffix(""))


def _units_in(top: Path) -> set[str]:
    return {_unit(Path(at, name).relative_to(top).as_posix()) for at, _, files in os.walk(top) for name in files}
