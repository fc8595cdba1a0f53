"""What goes into a bundle: the programs that were chosen, of the GPU folders that were chosen, and what belongs to them."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..cache import entry as entries
from ..cache.entry_files import digest_in
from ..cache.gpu_folder import GpuFolder
from ..cache.key import digest_of
from ..cache.tiers.disk import gpu_folders
from ..devices.fingerprint import Fingerprint
from ..errors import ArgumentError, KernelKeepError
from ..programs.languages import known_languages
from ..programs.portable import PortableKernel
from ..programs.source import Source
from ..storage.files import Damaged, read_regular
from ..storage.private import Trust
from ..variants.records import FILE_NAME as TUNING_FILE
from ..variants.records import Records
from .bundle_format import BundleWriter, fingerprint_of, is_plain_path


class Where(NamedTuple):
    """A cache folder, whose files are trusted in it, and the fingerprints of a cache's device."""

    root: Path
    trust: Trust
    device: tuple[Fingerprint, ...]


def _texts(argument: str, given: Iterable[str] | None) -> list[str]:
    """A list of texts that the caller gave; `ArgumentError` where it is none."""
    found = list(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else None
    if given is not None and (found is None or not all(isinstance(one, str) for one in found)):
        raise ArgumentError(f"{argument} must be a list of texts, got {given!r}")
    return found or []


class ChosenPrograms:
    """The programs that `names`, `digests` and `sources` choose; all of them where none is given."""

    def __init__(
        self,
        where: Where,
        names: Iterable[str] | None,
        digests: Iterable[str] | None,
        sources: Iterable[Source | PortableKernel] | None,
    ) -> None:
        self.everything = names is None and digests is None and sources is None
        self._root = where.root
        self._names = dict.fromkeys(_texts("names", names), False)  # whether it was found
        self._digests = dict.fromkeys(_texts("digests", digests), False)
        self._sources = [_in_all_languages(one) for one in sources or ()]
        self._found_sources: set[str] = set()

    def keys_in(self, fingerprint: Fingerprint) -> dict[str, str]:
        """The keys of the sources for a GPU, each with the source's name."""
        return {digest_of(one, fingerprint.digest): one.name for several in self._sources for one in several}

    def takes(self, digest: str, name: str, keys: Mapping[str, str]) -> bool:
        """Whether a program is among the chosen ones."""
        taken = self.everything
        if name in self._names:
            taken = self._names[name] = True
        if digest in keys:
            self._found_sources.add(keys[digest])
            taken = True
        for start in self._digests:
            if start and digest.startswith(start):
                taken = self._digests[start] = True
        return taken

    def check_complete(self) -> None:
        """`ArgumentError` for what was asked for and no program is."""
        for what, chosen in (("named", self._names), ("with the key", self._digests)):
            missing = [one for one, found in chosen.items() if not found]
            if missing:
                raise ArgumentError(f"no program {what} {missing[0]!r} is kept in {self._root}")
        for several in self._sources:
            if not any(one.name in self._found_sources for one in several):
                name = several[0].name if several else "a kernel that no language can express"
                raise ArgumentError(f"no program of the source {name!r} is kept in {self._root}; compile it first")


def _in_all_languages(given: Source | PortableKernel) -> list[Source]:
    """A source as it is; a portable kernel in every language that can express it."""
    if isinstance(given, Source):
        return [given]
    if not isinstance(given, PortableKernel):
        raise ArgumentError(
            f"sources must be a list of kk.Source and kk.PortableKernel, got a {type(given).__name__} in it"
        )
    found: list[Source] = []
    for language in known_languages():
        with contextlib.suppress(KernelKeepError):
            found.append(given.source(language))
    return found


def folder_names(where: Where, devices: str | Collection[str] | None) -> Collection[str] | None:
    """The names of the GPU folders that `devices` means; None for all. None means "this" for a cache and "all" for a folder."""
    if devices is not None and not isinstance(devices, str):
        return devices
    if devices not in ("this", "all", None):
        raise ArgumentError(f"devices must be 'this', 'all' or a list of GPU folders, got {devices!r}")
    if devices == "this" and not where.device:
        raise ArgumentError("devices must be 'all' or a list of GPU folders where no cache with a device is given")
    return None if devices == "all" or not where.device else [fingerprint.folder for fingerprint in where.device]


def chosen_folders(
    where: Where, devices: str | Collection[str] | None
) -> tuple[list[tuple[GpuFolder, Fingerprint]], list[str]]:
    """The GPU folders to export, each with its fingerprint; and what is left out, and why."""
    own = {fingerprint.folder: fingerprint for fingerprint in where.device}
    only = folder_names(where, devices)
    try:
        where.trust.check_folder(where.root)
    except FileNotFoundError:
        raise ArgumentError(f"there is no cache folder {where.root}") from None
    except OSError as error:
        raise ArgumentError(f"the cache folder {where.root} cannot be used: {error.strerror or error}") from None
    found, skipped = [], []
    for folder in gpu_folders(where.root, only, where.trust):
        fingerprint = own.get(folder.path.name) or fingerprint_of(folder.manifest.read().get("fingerprint"))
        if fingerprint is not None and fingerprint.folder == folder.path.name:
            found.append((folder, fingerprint))
        elif folder.files():
            skipped.append(f"{folder.path.name}: its manifest does not say for which GPU it is")
    return found, skipped


def write_folder(
    writer: BundleWriter,
    folder: GpuFolder,
    fingerprint: Fingerprint,
    chosen: ChosenPrograms,
    driver_cache: bool,
    skipped: list[str],
) -> bool:
    """Write the entries and the driver's files of a folder; whether there were any."""
    began = False

    def begin() -> None:
        nonlocal began
        if not began:
            writer.folder(fingerprint)
            began = True

    keys = chosen.keys_in(fingerprint)
    for path in folder.files():
        digest = digest_in(path)
        try:
            data = read_regular(path, folder.trust)[0]
            found = entries.decode(data, digest)
        except Damaged as damage:
            skipped.append(f"{path.name}: {damage}")
            continue
        except OSError:  # another process removed it
            continue
        if chosen.takes(digest, found.facts.name, keys):
            begin()
            writer.entry(digest, data)
    if driver_cache:
        for name, data in _driver_files(folder, skipped):
            begin()
            writer.file(name, data)
    return began


def _driver_files(folder: GpuFolder, skipped: list[str]) -> Iterator[tuple[str, bytes]]:
    top = folder.foreign.path
    for at, folders, files in os.walk(top):
        folders.sort()
        for name in sorted(files):
            path = Path(at, name)
            relative = path.relative_to(top).as_posix()
            try:
                if not is_plain_path(relative):
                    raise Damaged("its name cannot be written down")
                yield relative, read_regular(path, folder.trust)[0]
            except (Damaged, UnicodeError) as damage:
                skipped.append(f"{folder.path.name}, driver's cache, {relative!r}: {damage}")
            except OSError:  # the driver removed it
                continue


def tuning_lines(where: Where, folders: list[tuple[GpuFolder, Fingerprint]] | None) -> tuple[bytes, int]:
    """The tuning results of some GPUs, or all for None, as JSON lines; and how many there are."""
    if not (where.root / TUNING_FILE).exists():
        return b"", 0
    lines = io.BytesIO()
    with Records(where.root, where.trust) as records:
        wanted = [None] if folders is None else [fingerprint.digest for _, fingerprint in folders]
        count = sum(records.export(lines, None, device) for device in wanted)
    return lines.getvalue(), count
