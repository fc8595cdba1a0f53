"""Loading programs ahead of their use, several at a time."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from ..activity import live
from ..activity.spans import context, span
from ..errors import ArgumentError, BinaryRejected
from ..programs.portable import PortableKernel
from ..programs.source import Source
from ..progress.reporter import Wanted, reported
from .lease import Lease
from .report import PreloadFailure, PreloadReport
from .tiers.tier import Place

if TYPE_CHECKING:
    from .program_cache import ProgramCache

_BATCH = 512  # programs that are asked for together, and held in memory until they are loaded


def preload(
    cache: ProgramCache, items: Iterable[Source | PortableKernel | str], progress: Wanted, workers: int | None
) -> PreloadReport:
    """Load every item into `cache`; a program that fails does not stop the others."""
    cache.check_open()
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise ArgumentError(f"items must be a list of sources and names, got {items!r}")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ArgumentError(f"workers must be a positive integer, got {workers!r}")
    wanted = list(items)
    if cache.chain.has_remote:
        # Machines that start together begin with different programs, and compile different ones at the same time.
        random.shuffle(wanted)
    start = time.perf_counter()
    origins: dict[str, int] = {"memory": 0, "disk": 0, "remote": 0, "compiled": 0}
    failures: list[PreloadFailure] = []
    counting = threading.Lock()

    def load(item: Source | PortableKernel | str) -> None:
        name = item if isinstance(item, str) else getattr(item, "name", repr(item))
        report.begin(f"now {name}")
        failed = False
        try:
            with span("preload.program", parent, program=name):
                found = _get_named(cache, item) if isinstance(item, str) else [cache.get(item)]
                loaded_from = [_make_resident(cache, lease, item) for lease in found]
        except Exception as error:
            failed = True
            with counting:
                failures.append(PreloadFailure(name, error))
        else:
            with counting:
                for origin in loaded_from:
                    origins[origin] += 1
        shown.step(str(name))
        report.step(failed=failed)

    count = workers or min(32, (os.cpu_count() or 1) + 1)
    with (
        span("preload", device=cache.device.spec, programs=len(wanted)) as current,
        live.work("preload", "preload", cache.device.spec, len(wanted)) as shown,
        reported("preloading", len(wanted), progress, unit="programs") as report,
    ):
        parent = context()
        with ThreadPoolExecutor(max(1, min(count, len(wanted) or 1)), thread_name_prefix="kernelkeep-preload") as pool:
            for first in range(0, len(wanted), _BATCH):
                batch = wanted[first : first + _BATCH]
                _prefetch(cache, batch)
                list(pool.map(load, batch))
        current.set(failed=len(failures), **origins)
    cache.chain.forget_prefetched()
    return PreloadReport(**origins, failed=tuple(failures), seconds=time.perf_counter() - start)


def _prefetch(cache: ProgramCache, items: list[Source | PortableKernel | str]) -> None:
    """Ask the shared stores once for all programs that are neither in memory nor on disk."""
    if not cache.chain.has_remote:
        return
    wanted = []
    for item in items:
        with contextlib.suppress(Exception):  # what is wrong with an item is found, and reported, when it is loaded
            if not isinstance(item, str):
                source, digest = cache.identify(item)
                if digest not in cache.loaded:
                    wanted.append((digest, source.name, cache.places_ahead(source)))
    cache.chain.prefetch(wanted)


def _make_resident(cache: ProgramCache, lease: Lease, item: Source | PortableKernel | str) -> str:
    """Have the driver put the leased program's code on the device, and release the lease. Returns the program's origin.

    A binary that the driver refuses only now is rejected, and the program compiled.
    """
    with lease:
        try:
            lease.program.make_resident()
            return lease.origin
        except BinaryRejected as error:
            if lease.origin not in ("disk", "remote") or isinstance(item, str):
                raise
            cache.reject(lease, str(error))
    with cache.get(item) as again:
        again.program.make_resident()
        return again.origin


def _get_named(cache: ProgramCache, name: str) -> list[Lease]:
    found = []
    none: list[str] = []
    for digest in cache.chain.maintain(cache.disk, lambda: cache.disk.find_name(name), none):
        with contextlib.suppress(LookupError):  # pruned, rejected, or saved under another name
            found.append(cache.get_saved(digest, name))
    for fingerprint in () if found else cache.device.architecture_fingerprints:
        place = Place("", fingerprint.digest, fingerprint.folder, fingerprint.facts)
        for digest in cache.disk.find_name_ahead(place, name):
            with contextlib.suppress(LookupError):
                found.append(cache.get_saved(digest, name, place._replace(digest=digest)))
        if found:
            break
    if not found:
        raise ArgumentError(f"no program named {name!r} is on disk for {cache.device.spec}")
    return found
