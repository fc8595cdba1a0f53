"""Bundles: programs, tuning results and drivers' own caches of a cache folder in one file, for another machine.

    kk.export_bundle(cache, "kernels.kkb")
    kk.import_bundle(cache, "kernels.kkb")

What is in a bundle is executed, so it is signed with a key of `kernelkeep keys` or with `signing_key`, and is not imported
without a signature that is trusted here, unless `allow_unsigned=True`. Both functions take the path of a cache folder in
place of a cache and then need no device.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from .. import settings
from ..cache.program_cache import ProgramCache
from ..cache.stats import human_bytes
from ..errors import ArgumentError, RemoteError
from ..programs.portable import PortableKernel
from ..programs.source import Source
from ..remote.signing import Refused, make_keys
from ..storage.files import Damaged, NotRegular, check_destination, fill_and_rename, open_regular
from ..storage.private import default_trust
from .bundle_contents import ChosenPrograms, Where, chosen_folders, folder_names, tuning_lines, write_folder
from .bundle_format import BundleWriter, read_items
from .bundle_import import Importer

_KIND = _NAME = "bundle"  # what a signature binds; a bundle may be renamed
_Path = str | os.PathLike[str]


class BundleReport(msgspec.Struct, frozen=True):
    """What was exported or imported, and what was not and why.

    `entries`: programs written to the bundle, or to the cache; `already_there`: programs that the cache had;
    `driver_files`: files of drivers' own caches; `tuning_records`: tuning results that were written, or that changed
    something; `bytes`: the bundle's size. `signed`: it has a signature, and when it was imported, one that is trusted here.
    """

    path: Path
    entries: int
    already_there: int
    driver_files: int
    tuning_records: int
    folders: tuple[str, ...]
    bytes: int
    signed: bool
    seconds: float
    skipped: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [_count(self.entries, "program")]
        if self.already_there:
            parts.append(f"{self.already_there:,} already there")
        if self.driver_files:
            parts.append(_count(self.driver_files, "file") + " of drivers' caches")
        if self.tuning_records:
            parts.append(_count(self.tuning_records, "tuning record"))
        text = f"{', '.join(parts)}, in {_count(len(self.folders), 'GPU folder')}; {self.path} has {human_bytes(self.bytes)} "
        text += f"and is {'signed' if self.signed else 'not signed'}"
        return "\n".join([text, *(f"skipped: {reason}" for reason in self.skipped)])


def export_bundle(
    cache: ProgramCache | _Path | None,
    path: _Path,
    *,
    names: Iterable[str] | None = None,
    digests: Iterable[str] | None = None,
    sources: Iterable[Source | PortableKernel] | None = None,
    devices: str | Collection[str] | None = None,
    tuning: bool = True,
    driver_cache: bool = True,
    signing_key: bytes | _Path | None = None,
    ttl_seconds: float | None = None,
) -> BundleReport:
    """Write programs of a cache to one file, which appears whole or not at all. `cache` may be a cache folder's path, or None.

    `names`, `digests` and `sources` choose programs; without them all are taken. `devices`: "this" for the device of the cache
    and its architecture, "all" for every GPU in the cache folder, or the names of GPU folders; by default "this" for a cache
    and "all" for a folder. It is signed where there is a key; `ttl_seconds` is how long the signature holds.
    """
    start = time.perf_counter()
    where = _where(cache)
    keys = make_keys(signing_key, allow_unsigned=True)
    chosen = ChosenPrograms(where, names, digests, sources)
    if isinstance(cache, ProgramCache):
        cache.persist()
    folders, skipped = chosen_folders(where, devices)
    everywhere = devices == "all" or (devices is None and not where.device)
    target = _destination(path)
    written: list[str] = []
    records = 0

    def fill(file: BinaryIO) -> None:
        nonlocal records
        room = len(keys.head(_KIND, _NAME, bytes(32)))
        file.seek(room)
        writer = BundleWriter(file)
        for folder, fingerprint in folders:
            if write_folder(writer, folder, fingerprint, chosen, driver_cache, skipped):
                written.append(folder.path.name)
        if tuning:
            lines, records = tuning_lines(where, None if everywhere else folders)
            if records:
                writer.tuning(lines)
        digest = writer.end()
        file.seek(0)
        file.write(keys.head(_KIND, _NAME, digest, ttl_seconds))
        chosen.check_complete()
        sizes.update(writer.counts, bytes=room + writer.nbytes, signed=room)

    sizes: dict[str, int] = {}
    temporary = target.parent / f".{target.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        fill_and_rename(temporary, target, fill)
    except OSError as error:
        raise ArgumentError(f"{path} cannot be written: {error.strerror or error}") from None
    return BundleReport(
        path=target,
        entries=sizes["entries"],
        already_there=0,
        driver_files=sizes["files"],
        tuning_records=records,
        folders=tuple(written),
        bytes=sizes["bytes"],
        signed=bool(sizes["signed"]),
        seconds=time.perf_counter() - start,
        skipped=tuple(skipped),
    )


def import_bundle(
    cache: ProgramCache | _Path | None,
    path: _Path,
    *,
    devices: str | Collection[str] = "all",
    tuning: bool = True,
    driver_cache: bool = True,
    signing_key: bytes | _Path | None = None,
    allow_unsigned: bool = False,
) -> BundleReport:
    """Add what is in a bundle to a cache, or to a cache folder. Importing it again changes nothing.

    `devices`: "all" GPUs, "this" for the device of the cache and its architecture, or the names of GPU folders.

    All of it is verified before anything is written: the signature, every program, every file. `RemoteError` says what is
    wrong with it. What the cache has already stays, unless it is damaged or the bundle has more native code of it.
    """
    start = time.perf_counter()
    where = _where(cache)
    only = folder_names(where, devices)
    keys = make_keys(signing_key, allow_unsigned=True)
    keys.allow_unsigned = allow_unsigned
    with _opened(path, where) as (file, size):
        try:
            begin = keys.open_file(_KIND, _NAME, file)
            importer = Importer(where.root, where.trust, only, tuning=tuning, driver_cache=driver_cache)
            for item in read_items(file, size - begin):
                importer.check(item)
            file.seek(begin)
            try:
                for item in read_items(file, size - begin):
                    importer.add(item)
            finally:
                importer.finish()
        except Refused as refused:
            raise RemoteError(_why_refused(path, refused)) from None
        except Damaged as damage:
            raise RemoteError(f"{path} is not imported: {damage}") from None
        except OSError as error:
            raise ArgumentError(f"{where.root} cannot take the bundle: {error.strerror or error}") from None
    return BundleReport(
        path=Path(path),
        entries=importer.entries,
        already_there=importer.already_there,
        driver_files=importer.driver_files,
        tuning_records=importer.tuning_records,
        folders=tuple(importer.folders),
        bytes=size,
        signed=bool(begin),
        seconds=time.perf_counter() - start,
        skipped=tuple(importer.skipped),
    )


def _where(cache: ProgramCache | _Path | None) -> Where:
    if isinstance(cache, ProgramCache):
        cache.check_open()
        device = (cache.device.fingerprint, *cache.device.architecture_fingerprints)
        return Where(cache.cache_dir, cache.disk.trust, device)
    if cache is not None and not isinstance(cache, str | os.PathLike):
        raise ArgumentError(f"cache must be a kk.ProgramCache or the path of a cache folder, got {cache!r}")
    return Where(settings.cache_dir(cache), default_trust(), ())


# --- files


def _destination(path: _Path) -> Path:
    try:
        check_destination(path)
        return Path(os.path.realpath(path))
    except NotRegular as error:
        raise ArgumentError(f"{path} cannot be written: it {error}") from None
    except (OSError, ValueError, TypeError) as error:
        raise ArgumentError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None


@contextlib.contextmanager
def _opened(path: _Path, where: Where) -> Iterator[tuple[BinaryIO, int]]:
    """A bundle that nobody can change while it is verified and read, and its size."""
    try:
        file = open_regular(path)
    except NotRegular as error:
        raise ArgumentError(f"{path} cannot be read: it {error}") from None
    except (OSError, ValueError, TypeError) as error:
        raise ArgumentError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    with contextlib.ExitStack() as held:
        held.enter_context(file)
        if where.trust.objection(os.fstat(file.fileno())):  # another user could change it after the check
            original, file = file, cast(BinaryIO, held.enter_context(tempfile.TemporaryFile()))
            shutil.copyfileobj(original, file)
            file.seek(0)
        yield file, os.fstat(file.fileno()).st_size


def _why_refused(path: _Path, refused: Refused) -> str:
    if refused.kind == "unsigned":
        return (
            f"{path} is not imported: it is not signed, and what is in a bundle is executed; if you trust everyone who could "
            "have written it, say allow_unsigned=True, or --allow-unsigned"
        )
    remedy = "; `kernelkeep keys trust` trusts a key" if refused.kind == "stranger" else ""
    return f"{path} is not imported: {refused}{remedy}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
