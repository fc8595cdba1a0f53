"""`ProgramCache`: compile once, run forever.

Every program takes the same path: memory → tiers → compile → save in the tiers → load. Whoever asks for it meanwhile waits, in
this process (a future) and in others (a lock file), and one compile serves all.

Only this module, `loading.py` and `compiling.py` know devices; the tiers see keys and bytes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Hashable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from .. import settings
from ..activity import live
from ..activity.facts import Facts as LiveFacts
from ..activity.spans import span
from ..errors import ArgumentError, DeviceError, TaskSilent
from ..programs.portable import PortableKernel
from ..programs.source import Source, not_a_source, wrong_language
from ..storage.private import Trust
from ..weak_set import WeakSet
from .chain import TierChain
from .hot_path import HotLookup
from .key import Key, digest_once, key_of
from .lease import Lease, lease_on
from .lifetime_counts import LifetimeCounts
from .loaded_programs import LoadedProgram, LoadedPrograms
from .loading import TierLoader, places_ahead
from .log import log
from .open_caches import add_open_cache, discard_open_cache
from .saver import Saver, SaveState
from .single_flight import Flights
from .stats import CacheStats, Counters, bytes_bound, check_seconds, typed_counts
from .tiers.disk import DiskTier, Pruned
from .tiers.tier import Place
from .timings import Timings

if TYPE_CHECKING:
    from ..devices.base import Device
    from ..progress.reporter import Wanted
    from ..remote.address import Remote
    from ..words import ProgramOrigin
    from .report import Explanation, PreloadReport
    from .tiers.remote import RemoteTier

_UNBOUNDED = 1 << 60


class _Closable(Protocol):
    def close(self) -> None: ...


class ProgramCache(HotLookup):
    """Compiled programs of one device, in memory, on disk and in shared stores. Safe under threads, processes and `kill -9`.

    `max_programs` (100) and `max_bytes` bound what is loaded, `max_disk_bytes` (1 GiB) the whole cache folder. A folder that
    another user could have written to is not used, unless `trusted_owner` names that user. The cache does not own the device.
    A context manager; an open one is closed when the interpreter ends.

    `remote`: the address of a shared store, a `kk.Remote`, or several, nearest first; by default what KERNELKEEP_REMOTE names,
    and `[]` for none. What is in a store is executed, so entries are signed: `signing_key` is a shared secret (bytes) or the
    path of a key file, and without it the keys of `kernelkeep keys` are used. `allow_unsigned` takes what nobody signed.
    A lookup waits for all remotes together at most `remote_timeout` seconds, and a server that is gone costs that once.

    `loaded`, `chain` and `disk` are its parts: programs in memory, the lookup through the tiers, and the tier on disk.
    """

    def __init__(
        self,
        device: Device,
        cache_dir: str | os.PathLike[str] | None = None,
        max_programs: int = settings.MAX_PROGRAMS,
        max_bytes: float | None = None,
        max_disk_bytes: float | None = settings.MAX_DISK_BYTES,
        remote: str | Remote | Iterable[str | Remote] | None = None,
        *,
        signing_key: bytes | str | os.PathLike[str] | None = None,
        allow_unsigned: bool = False,
        remote_timeout: float = settings.REMOTE_TIMEOUT_SECONDS,
        auto_save: bool = True,
        compile_wait_seconds: float = settings.COMPILE_WAIT_SECONDS,
        trusted_owner: str | int | None = None,
    ) -> None:
        if not hasattr(device, "fingerprint") or not hasattr(device, "build"):
            raise ArgumentError(f"device must be one that kk.open_device returned, got {device!r}")
        device.check_open()
        if not isinstance(max_programs, int) or max_programs < 1:
            raise ArgumentError(f"max_programs must be a positive integer, got {max_programs!r}")
        check_seconds("remote_timeout", remote_timeout, positive=True, below=settings.REMOTE_LONGEST_SECONDS)
        check_seconds("compile_wait_seconds", compile_wait_seconds)
        memory_bound = bytes_bound("max_bytes", max_bytes)
        disk_bound = bytes_bound("max_disk_bytes", max_disk_bytes)
        self.trusted_owner = settings.trusted_owner() if trusted_owner is None else trusted_owner
        trust = Trust(self.trusted_owner)
        self.closed = True  # until everything below is there
        self._process = os.getpid()
        self.device = device
        self.cache_dir = settings.cache_dir(cache_dir)
        self._compile_wait_seconds = min(compile_wait_seconds, threading.TIMEOUT_MAX / 2)
        self._fingerprint = device.fingerprint.digest
        self._counters = Counters()
        self._timings = Timings()
        self.loaded = LoadedPrograms(max_programs, memory_bound)
        most_on_disk = _UNBOUNDED if disk_bound is None else disk_bound
        self.disk = DiskTier(self.cache_dir, device.fingerprint.folder, device.fingerprint.facts, most_on_disk, trust)
        far: list[RemoteTier] = []
        if remote is not None or settings.remotes():
            from .folder_description import FolderDescription  # many do without, and start-up counts
            from .remote_tiers import open_remote_tiers, resolve_remotes

            options: Any = {"signing_key": signing_key, "allow_unsigned": allow_unsigned, "trust": trust}
            remotes = resolve_remotes(remote, timeout_seconds=remote_timeout, **options)
            far = open_remote_tiers(remotes, FolderDescription(device.fingerprint.folder, device.fingerprint.facts))
            remote_timeout = max((tier.remote.timeout_seconds for tier in far), default=remote_timeout)
        self.chain = TierChain([self.disk, *far], remote_timeout)
        self.saver = Saver(device, self.chain, self.loaded, self._counters, automatic=auto_save)
        self._loader = TierLoader(device, self.chain, self.loaded, self.saver, self._timings)
        self._flights: Flights[tuple[LoadedProgram, ProgramOrigin]] = Flights(
            hold=lambda found: found[0].begin(), drop=lambda found: found[0].end()
        )
        # Not a method: a cache that refers to itself would be freed late, and its programs with it.
        self._counts = partial(_read_counts, self._counters, self._timings, self.loaded, self.chain)
        self._lifetime = LifetimeCounts(self._counts, self.disk)
        self.bind_hot(self.loaded.hot, self.loaded.next_tick)
        # What the layers above keep with the cache, by keys of their own. Emptied when it is closed.
        self.memo: dict[Any, Any] = {}
        self._named_ahead = False  # whether a program that was compiled ahead was loaded by its name
        self.closed = False
        self._tenants: WeakSet[_Closable] = WeakSet()
        device.add_reliever(self)
        add_open_cache(self)
        live.add("cache", self, ProgramCache.live_facts)

    # --- looking up

    if TYPE_CHECKING:  # `HotLookup` has it, in C or in Python

        def get(self, source: Source | PortableKernel) -> Lease:
            """A lease on the loaded program. Compiles at most once per key, whoever asks, wherever.

            Raises `CompileError` with the compiler's log, to everyone who waited for it; nothing is cached then.
            """

    def get_slowly(self, asked: Source | PortableKernel) -> Lease:
        """A lease on a program that the hot path does not find."""
        source, digest = self.identify(asked)
        loaded = self.loaded.hold(digest, asked)
        if loaded is None:
            with span("cache.get", program=source.name, device=self.device.spec) as current:
                (loaded, origin), leading = self._flights.join(
                    digest, lambda: self._bring(source, digest, asked), self._compile_wait_seconds
                )
                current.set(origin=origin, bytes=loaded.nbytes, waited=not leading)
            if leading and origin != "memory":
                return lease_on(loaded, origin)
            if not leading:
                self._counters.add(waits=1)
                self.loaded.remember(loaded, asked)
        loaded.tick = self.loaded.next_tick()
        return lease_on(loaded, "memory")

    def get_saved(self, digest: str, name: str, place: Place | None = None) -> Lease:
        """A lease on a program that was saved under a name; `LookupError` where no tier has it.

        `place` is where it is if it was compiled ahead.
        """
        alias = (name, digest)
        loaded = self.loaded.hold(digest, alias)
        if loaded is not None:
            return lease_on(loaded, "memory")

        def load() -> tuple[LoadedProgram, ProgramOrigin]:
            found = self._loader.load(digest, name, alias, only_named=True, place=place)
            if found is None:
                raise LookupError(digest)
            self._named_ahead = self._named_ahead or place is not None
            return found

        with span("cache.get", program=name, device=self.device.spec) as current:
            (loaded, origin), leading = self._flights.join(digest, load, self._compile_wait_seconds)
            current.set(origin=origin, bytes=loaded.nbytes, waited=not leading)
        return lease_on(loaded, origin)

    def reject(self, lease: Lease, reason: str) -> None:
        """The driver refused a leased program after it had been loaded: do not find it again, here or in a tier."""
        state: SaveState = lease.loaded.save_state
        self.chain.reject(lease.loaded.digest, state.facts.name, reason, state.place)
        self.loaded.forget(lease.loaded)

    def identify(self, asked: Source | PortableKernel) -> tuple[Source, str]:
        """The source for this device, and its digest, which is computed once for each `Source`."""
        self.check_open()
        source = asked
        if not isinstance(source, Source):
            if not isinstance(source, PortableKernel):
                raise not_a_source(source)
            source = source.source(self.device)
        if source.language != self.device.language:
            raise wrong_language(source, self.device.spec, self.device.language)
        return source, digest_once(source, self._fingerprint)

    def key(self, source: Source) -> Key:
        """The key of a source on this device, with its fields in a readable form."""
        return key_of(source, self._fingerprint, self.device.fingerprint.folder)

    def places_ahead(self, source: Source) -> list[Place]:
        """Where a source may be found that was compiled ahead for this device's architecture, the preferred place first."""
        return places_ahead(self.device, source)

    def _bring(self, source: Source, digest: str, alias: Hashable) -> tuple[LoadedProgram, ProgramOrigin]:
        """Load a program from wherever it is, or compile it. One thread does this. The program is in use until `end()`."""
        loaded = self.loaded.hold(digest, alias)
        if loaded is None and self._named_ahead:  # it may have been loaded by its name, under its architecture's key
            keys = (place.digest for place in self.places_ahead(source))
            loaded = next(filter(None, (self.loaded.hold(key, alias) for key in keys)), None)
        if loaded is not None:  # another thread had just finished
            return loaded, "memory"
        within = self.chain.lookup_time() if self.chain.has_remote else None
        found = self._loader.load(digest, source.name, alias, source, within=within)
        if found is not None:
            return found
        asked_at = time.monotonic()

        def compiled_elsewhere(tiers: int) -> bool:
            nonlocal found
            found = self._loader.load(digest, source.name, alias, tiers=tiers, within=within)
            return found is not None

        wait, shared = self._compile_wait_seconds, self.saver.saves_compiled
        with self.chain.alone(digest, wait, source.name, found=compiled_elsewhere, shared=shared, within=within):
            if found is None:
                return self._compile(source, digest, alias), "compiled"
        self._counters.add(waits=1)
        log(source.name, "waited %.0f ms for somebody else to compile", (time.monotonic() - asked_at) * 1e3)
        return found

    def _compile(self, source: Source, digest: str, alias: Hashable) -> LoadedProgram:
        from .compiling import compile_program  # a program that is found needs none
        from .diary_notes import note_compile

        program, facts = compile_program(
            source, self.key(source), self.device, self._loader.with_relief, self._counters, self._timings, self.disk
        )
        state = SaveState(facts, saved=False)
        if self.saver.automatic:
            self.saver.save(program, state)
        note_compile(self.disk, facts, saves=self.saver.automatic)
        loaded = self._loader.add(program, state, digest, alias)
        self._lifetime.save()
        return loaded

    def relieve(self, nbytes: int | None) -> bool:
        """Evict idle programs, because the device is out of memory. Whether anything was evicted."""
        return self.loaded.evict_idle()

    def preload(
        self, items: Iterable[Source | PortableKernel | str], progress: Wanted = False, workers: int | None = None
    ) -> PreloadReport:
        """Load programs ahead of their use, several at a time: sources, or names of programs known on disk.

        A program that fails does not stop the others; the report says which and why.
        """
        from .preload import preload  # thread pools take a while to import, and start-up counts

        return preload(self, items, progress, workers)

    def explain(self, source: Source | PortableKernel) -> Explanation:
        """Why a lookup hits or misses, field by field, against the nearest entry."""
        from .explain import explain

        return explain(self, source)

    # --- upkeep

    def persist(self) -> int:
        """Save every loaded program that is not saved yet, or that has more native code now; how many were written.

        Waits for shared stores while they take entries, and not for one that hangs.
        """
        self.check_open()
        written = self.saver.save_all()
        self.chain.flush()
        self._lifetime.save()
        return written

    def save_counts(self) -> None:
        """Add to the statistics and the diary of all processes what was counted since the last time."""
        if not self.closed:
            self._lifetime.save(note=True)

    def finish_saving(self) -> None:
        """Wait until what is being saved in the background is saved. A shared store that hangs is not waited for."""
        self.saver.finish()
        self.chain.flush()

    def trim(self, target_bytes: int = 0) -> int:
        """Evict idle programs from memory until at most `target_bytes` are loaded; how many bytes went."""
        self.check_open()
        target = bytes_bound("target_bytes", target_bytes)
        return 0 if target is None else self.loaded.trim(target)

    def prune(self, max_age_days: float | None = 30, max_bytes: int | None = None, *, gone: bool = False) -> Pruned:
        """Remove from disk what was not used for `max_age_days`, then the oldest down to `max_bytes`, in all GPU folders.

        With `gone`, also the folders of GPUs, drivers and compilers that this machine used and no longer has.
        """
        self.check_open()
        is_gone = None
        if gone:
            from ..devices.registry import fingerprints_here
            from .upkeep import is_gone_from

            is_gone = is_gone_from(fingerprints_here(self.cache_dir))
        return self.chain.maintain(self.disk, lambda: self.disk.prune(max_age_days, max_bytes, is_gone), Pruned())

    def stats(self) -> CacheStats:
        """The numbers of this cache object since it was made; programs and bytes as they are now."""
        self._check_not_forked()
        on_disk, disk_bytes = self.chain.maintain(self.disk, self.disk.count, (0, 0))
        return CacheStats(
            programs=len(self.loaded),
            over_bound=self.loaded.over,
            on_disk=on_disk,
            memory_bytes=self.loaded.nbytes,
            disk_bytes=disk_bytes,
            **typed_counts(self._counts()),
        )

    def lifetime_stats(self) -> CacheStats:
        """The same, summed over every process that ever used this cache folder, this one included."""
        self._check_not_forked()
        return msgspec.structs.replace(self.stats(), **typed_counts(self._lifetime.totals()))

    def live_facts(self) -> LiveFacts:
        """What `kernelkeep top` and metrics show of this cache. Waits for nothing, and looks at no file."""
        return LiveFacts(
            {"device": self.device.spec, "device_name": self.device.info.name, "folder": str(self.cache_dir)},
            self._counts(),
            {
                "programs": len(self.loaded),
                "memory_bytes": self.loaded.nbytes,
                "max_programs": self.loaded.max_programs,
                "over_bound": self.loaded.over,
                "compiling": self._timings.compiling_now(),
            },
            self._timings.histograms(),
        )

    # --- life

    def add_tenant(self, tenant: _Closable) -> None:
        """`tenant.close()` is called when the cache closes: it keeps something beside the programs, or uses them."""
        self._tenants.add(tenant)

    def close(self) -> None:
        """Save what is still to be saved, unload the programs, and add up the statistics. The device stays open.

        Resident grids are closed before. Where that raises `TaskSilent`, the cache stays open as well.
        """
        if self.closed:
            return
        self.closed = True
        self.memo.clear()
        try:
            for tenant in list(self._tenants):
                tenant.close()
        except TaskSilent:  # a resident grid goes on, and needs the cache
            self.closed = False
            raise
        finally:
            if self.closed:
                discard_open_cache(self)
                self.saver.close()
                self.chain.close()
                self.loaded.clear()
                self._lifetime.save(note=True)
                live.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "closed", True) and os.getpid() == self._process:
            self._lifetime.abandon()
            live.remove(self)

    def __repr__(self) -> str:
        return f"<ProgramCache for {self.device.spec} in {self.cache_dir}: {len(self.loaded)} loaded>"

    def _repr_html_(self) -> str:
        from .html import cache_html

        return cache_html(self)

    def check_open(self) -> None:
        """`DeviceError` if the cache is closed, or belongs to the process this one was forked from."""
        if self.closed:
            self._check_not_forked()
            raise DeviceError(
                f"the cache for {self.device.spec} in {self.cache_dir} is closed: use it inside its with block"
            )

    def _check_not_forked(self) -> None:
        if os.getpid() != self._process:
            self.device.check_open()  # says why a device cannot be used in a forked child

    def lose(self) -> None:
        """This process was forked from the cache's. Nothing is found from here on; leases do nothing when they end."""
        self.closed = True
        self.memo.clear()
        self.loaded.lose()

    @property
    def folder(self) -> Path:
        """The folder of this device inside the cache folder."""
        return self.disk.folder.path


def _read_counts(counters: Counters, timings: Timings, loaded: LoadedPrograms, chain: TierChain) -> dict[str, float]:
    counts = counters.read()
    counts["compile_seconds_saved"] = timings.compile_seconds_saved
    counts["hits_memory"] = loaded.hits
    counts["evictions"] = loaded.evictions
    return counts | chain.tier_counts()
