"""`ProgramCache`: compile once, run forever.

One way for every program: memory → disk → compile → save → add to memory. Whoever asks while it is under way waits for
it, in this process (a future) and in others (a lock file), and one compile serves all.

This is the only module of `cache/` that knows devices; the tiers see keys and bytes.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from .. import __version__, settings
from ..errors import ArgumentError, BinaryRejected, CompileError, DeviceError, OutOfMemory, Unsupported
from ..programs.portable import PortableKernel
from ..programs.source import Source
from ..storage.private import Trust
from .disk import DiskTier, Pruned
from .entry import Entry, Facts
from .folder import GpuFolder
from .key import Key, digest_of, key_of
from .lease import Lease
from .loaded_programs import LoadedProgram, LoadedPrograms
from .log import log
from .single_flight import Flights
from .stats import COUNTERS, CacheStats, Counters, typed_counts

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from ..devices.base import Device, Program
    from .report import Explanation, PreloadReport

__all__ = ["ProgramCache", "gone_from_here"]

_open_caches: weakref.WeakSet[ProgramCache] = weakref.WeakSet()


class _Residence:
    """What the cache remembers of a program beside the program."""

    __slots__ = ("facts", "on_disk", "ripening", "unripe")

    def __init__(self, facts: Facts, on_disk: bool) -> None:
        self.facts = facts
        self.on_disk = on_disk
        self.ripening = False
        self.unripe = 0  # what was still unripe after the last saving: no use trying for that again


class _Closable(Protocol):
    def close(self) -> None: ...


class ProgramCache:
    """Compiled programs of one device, in memory and on disk. Safe under threads, processes and `kill -9`.

    `max_programs` and `max_bytes` bound what is resident, `max_disk_bytes` the whole cache folder. A folder that another
    user could have written to is not used, unless `trusted_owner` names that user. The cache does not own the device.
    A context manager; an open one is closed when the interpreter ends.
    """

    def __init__(
        self,
        device: Device,
        cache_dir: str | os.PathLike[str] | None = None,
        max_programs: int = settings.MAX_PROGRAMS,
        max_bytes: float | None = None,
        max_disk_bytes: float | None = settings.MAX_DISK_BYTES,
        remote: None = None,
        *,
        auto_save: bool = True,
        compile_wait_seconds: float = settings.COMPILE_WAIT_SECONDS,
        trusted_owner: str | int | None = None,
    ) -> None:
        if remote is not None:
            raise Unsupported("remote", "this version keeps programs in memory and on disk only")
        if not hasattr(device, "fingerprint") or not hasattr(device, "build"):
            raise ArgumentError(f"a cache is made for a device that kk.open_device gave, not for {device!r}")
        device.check_open()
        if not isinstance(max_programs, int) or max_programs < 1:
            raise ArgumentError(f"max_programs is a positive integer, not {max_programs!r}")
        memory_bound = _bound("max_bytes", max_bytes)
        disk_bound = _bound("max_disk_bytes", max_disk_bytes)
        self.trusted_owner = settings.trusted_owner() if trusted_owner is None else trusted_owner
        trust = Trust(self.trusted_owner)
        self.closed = True  # until everything below is there
        self._process = os.getpid()
        self.device = device
        self.cache_dir = settings.cache_dir(cache_dir)
        self.auto_save = auto_save
        self._compile_wait_seconds = compile_wait_seconds
        self._fingerprint = device.fingerprint.digest
        self._ripens = device.capabilities.ripening_binaries
        self._memory = LoadedPrograms(max_programs, memory_bound)
        facts = asdict(device.fingerprint) | {"digest": self._fingerprint}
        most = _UNBOUNDED if disk_bound is None else disk_bound
        self._disk = DiskTier(self.cache_dir, device.fingerprint.folder, facts, most, trust)
        self._flights: Flights[tuple[LoadedProgram, str]] = Flights()
        self._counters = Counters()
        self._saved_counts = dict.fromkeys(COUNTERS, 0.0)
        self._saving = threading.Lock()
        self._savers: ThreadPoolExecutor | None = None
        self._pending: set[Future[None]] = set()
        # The hot path's own names: a lookup and a tick.
        self._hot = self._memory.hot
        self._tick = self._memory.next_tick
        self.closed = False
        self._tenants: weakref.WeakSet[_Closable] = weakref.WeakSet()
        device.add_reliever(self)
        _open_caches.add(self)

    # --- looking up

    def get(self, source: Source | PortableKernel) -> Lease:
        """A lease on the loaded program. Compiles at most once per key, whoever asks, wherever.

        Raises `CompileError` with the compiler's log, to everyone who waited for it; nothing is cached then.
        """
        try:
            slot = self._hot.get(source)
        except TypeError:  # not hashable, so not a source; what it is is said below
            slot = None
        if slot is not None:
            slot.tick = self._tick()
            return Lease(slot, "memory")
        return self._get_slowly(source)

    def _get_slowly(self, asked: Source | PortableKernel) -> Lease:
        source, digest = self._identify(asked)
        slot = self._memory.find(digest, asked)
        if slot is None:
            (slot, origin), leading = self._flights.join(
                digest, lambda: self._bring(source, digest, asked), self._compile_wait_seconds
            )
            if leading and origin != "memory":
                return Lease(slot, origin)
            if not leading:
                self._counters.add(waits=1)
                self._memory.find(digest, asked)  # the hot path knows this Source too from now on
        slot.tick = self._tick()
        return Lease(slot, "memory")

    def _identify(self, asked: Source | PortableKernel) -> tuple[Source, str]:
        self._check_open()
        source = asked.source(self.device) if isinstance(asked, PortableKernel) else asked
        if not isinstance(source, Source):
            raise ArgumentError(f"a cache is asked for a kk.Source or kk.PortableKernel, not a {type(source).__name__}")
        if source.language != self.device.language:
            takes = f"{self.device.spec} takes {self.device.language}"
            raise ArgumentError(f"source {source.name} is {source.language}, and {takes}")
        digests: dict[str, str] = source.__dict__.setdefault("_digests", {})  # computed once for each Source
        digest = digests.get(self._fingerprint)
        if digest is None:
            digest = digests[self._fingerprint] = digest_of(source, self._fingerprint)
        return source, digest

    def key(self, source: Source) -> Key:
        """The key of a source on this device, with its fields in a readable form."""
        return key_of(source, self._fingerprint, self.device.fingerprint.folder)

    def _bring(self, source: Source, digest: str, alias: Source | PortableKernel) -> tuple[LoadedProgram, str]:
        """Bring a program into memory: the whole way of a program, done by one thread."""
        slot = self._memory.find(digest, alias)
        if slot is not None:  # the flight before ours had just landed
            return slot, "memory"
        slot = self._from_disk(digest, source.name, alias)
        if slot is not None:
            return slot, "disk"
        asked_at = time.monotonic()
        with self._disk.alone(digest, self._compile_wait_seconds, source.name):
            # Another process may have compiled it while we waited for the lock.
            slot = self._from_disk(digest, source.name, alias)
            if slot is not None:
                self._counters.add(waits=1)
                self._log(
                    "waited %.0f ms for another process to compile", source.name, (time.monotonic() - asked_at) * 1e3
                )
                return slot, "disk"
            return self._compile(source, digest, alias), "compiled"

    def _from_disk(self, digest: str, name: str, alias: Any, *, only_named: bool = False) -> LoadedProgram | None:
        entry = self._disk.get(digest, name)
        if entry is None or (only_named and entry.facts.name != name):
            return None
        start = time.perf_counter()
        try:
            program = self._with_relief(lambda: self.device.load(entry.payload, eager=False))
        except BinaryRejected as error:
            self._disk.reject(digest, name, str(error))
            return None
        seconds = time.perf_counter() - start
        saved = max(0.0, entry.facts.compile_seconds - seconds)
        self._counters.add(hits_disk=1, compile_seconds_saved=saved)
        self._log("loaded from disk in %.2f ms", entry.facts.name, seconds * 1e3)
        return self._settle(program, _Residence(entry.facts, on_disk=True), digest, alias)

    def _compile(self, source: Source, digest: str, alias: Any) -> LoadedProgram:
        start = time.perf_counter()
        try:
            program = self._with_relief(lambda: self.device.build(source))
        except CompileError:
            self._counters.add(misses=1, compile_errors=1)
            raise
        seconds = time.perf_counter() - start
        self._counters.add(misses=1, compiles=1, compile_seconds=seconds)
        self._log("compiled in %.0f ms", source.name, seconds * 1e3)
        facts = Facts(
            name=source.name,
            language=source.language,
            device=self.device.fingerprint.folder,
            key=self.key(source),
            created=time.time(),
            compile_seconds=seconds,
            version=__version__,
            kernels=program.kernel_names,
        )
        residence = _Residence(facts, on_disk=False)
        if self.auto_save:
            self._save(program, residence)
        slot = self._settle(program, residence, digest, alias)
        self._save_stats()
        return slot

    def _settle(self, program: Program, residence: _Residence, digest: str, alias: Any) -> LoadedProgram:
        slot = LoadedProgram(self._memory, digest, program, residence)
        if self._ripens and self.auto_save:
            program.on_ripening = _to_be_saved(slot, self._ripen_later)
        return self._memory.add(slot, alias)

    def _with_relief(self, work: Any) -> Any:
        """Do it; if the device has no memory for it, evict every idle program and try once more."""
        try:
            return work()
        except OutOfMemory:
            if not self.relieve(None):
                raise
            return work()

    def relieve(self, nbytes: int | None) -> bool:
        """The device is out of memory: evict idle programs. Whether anything went."""
        evicted = self._memory.evictions
        self._memory.trim(0)
        return self._memory.evictions > evicted

    # --- saving

    def _save(self, program: Program, residence: _Residence) -> bool:
        """Write a program to disk. A failure to do so is no failure of the program."""
        if not self.device.capabilities.program_binaries:
            self._log("not saved: this driver gives no program binaries", residence.facts.name)
            return False
        try:
            payload = program.binary()
            residence.facts = msgspec.structs.replace(residence.facts, payload_bytes=len(payload))
            residence.on_disk = self._disk.put(Entry(residence.facts, payload))
        except Exception as error:  # whatever it is, the user's program has its program
            self._log("not saved: %r", residence.facts.name, error)
            return False
        residence.unripe = program.ripeness
        return residence.on_disk

    def _ripen_later(self, slot: LoadedProgram) -> None:
        """A lease was released whose launches made the driver compile more: save that too, in the background."""
        slot.on_release = None
        residence: _Residence = slot.extra
        if slot.program.ripeness > residence.unripe and not residence.ripening and not self.closed:
            residence.ripening = True
            with self._saving:
                if self._savers is None:
                    from concurrent.futures import ThreadPoolExecutor

                    self._savers = ThreadPoolExecutor(1, thread_name_prefix="kernelkeep-save")
                with contextlib.suppress(RuntimeError):  # the interpreter is ending; closing saves it then
                    future = self._savers.submit(self._ripen_held, [slot])
                    self._pending.add(future)
                    future.add_done_callback(self._pending.discard)

    def _ripen_held(self, held: list[LoadedProgram]) -> None:
        self._ripen(held.pop())  # and nothing here holds the slot any longer
        if self._memory.over:
            self._memory.shrink()

    def _ripen(self, slot: LoadedProgram) -> None:
        residence: _Residence = slot.extra
        try:
            if slot.program.closed or slot.program.ripeness <= residence.unripe:
                return
            self.device.synchronize()  # the driver compiles when the launch begins, not when it is asked for
            before = residence.facts
            residence.facts = msgspec.structs.replace(before, ripened=before.ripened + 1)
            if self._save(slot.program, residence):
                self._counters.add(ripened=1)
                self._memory.grew(slot)
                self._log("saved again after use", residence.facts.name)
        except Exception as error:  # in the background there is nobody to tell
            self._log("not saved again: %r", residence.facts.name, error)
        finally:
            residence.ripening = False

    def persist(self) -> int:
        """Write every resident program that is not on disk, or riper than there; how many were written."""
        self._check_open()
        self._finish_saving()
        written = 0
        for slot in self._memory:
            residence: _Residence = slot.extra
            if not residence.on_disk or slot.program.ripeness > residence.unripe:
                self.device.synchronize()
                written += self._save(slot.program, residence)
        self._save_stats()
        return written

    def _finish_saving(self) -> None:
        for future in list(self._pending):
            future.exception()

    # --- preloading

    def preload(
        self, items: Iterable[Source | PortableKernel | str], progress: bool = False, workers: int | None = None
    ) -> PreloadReport:
        """Bring programs into memory, several at a time: sources, or names of programs known on disk.

        A program that fails does not stop the others; the report says which and why.
        """
        from .preload import preload  # thread pools take a while to import, and start-up counts

        return preload(self, items, progress, workers)

    # --- upkeep

    def trim(self, target_bytes: int = 0) -> int:
        """Evict idle programs from memory until at most `target_bytes` are resident; how many bytes went."""
        self._check_open()
        target = _bound("target_bytes", target_bytes)
        return 0 if target is None else self._memory.trim(target)

    def prune(self, max_age_days: float | None = 30, max_bytes: int | None = None, *, gone: bool = False) -> Pruned:
        """Remove from disk what was not used for `max_age_days`, then the oldest down to `max_bytes`, in all GPU folders.

        With `gone`, also the folders of GPUs, drivers and compilers that this machine used and no longer has.
        """
        self._check_open()
        for name, value in (("max_age_days", max_age_days), ("max_bytes", max_bytes)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise ArgumentError(f"{name} is a number, not {value!r}")
        is_gone = gone_from_here(self.cache_dir) if gone else None
        return self._disk.prune(max_age_days, max_bytes, is_gone)

    def stats(self) -> CacheStats:
        """The numbers of this cache object since it was made; programs and bytes as they are now."""
        self._check_not_lost()
        on_disk, disk_bytes = self._disk.count()
        return CacheStats(
            programs=len(self._memory),
            over_bound=self._memory.over,
            on_disk=on_disk,
            memory_bytes=self._memory.nbytes,
            disk_bytes=disk_bytes,
            **typed_counts(self._counts()),
        )

    def lifetime_stats(self) -> CacheStats:
        """The same, summed over every process that ever used this cache folder, this one included."""
        self._check_not_lost()
        self._save_stats()
        now = self.stats()
        sums = self._disk.read_sums()
        unsaved = self._unsaved_counts()
        return msgspec.structs.replace(now, **typed_counts({name: sums[name] + unsaved[name] for name in COUNTERS}))

    def _counts(self) -> dict[str, float]:
        counts = self._counters.read()
        counts["hits_memory"] = self._memory.hits
        counts["evictions"] = self._memory.evictions
        counts["corrupt_entries"] = self._disk.corrupt
        return counts

    def _unsaved_counts(self) -> dict[str, float]:
        return {name: value - self._saved_counts[name] for name, value in self._counts().items()}

    def _save_stats(self) -> None:
        _save_left_behind()
        with self._saving:
            new = self._unsaved_counts()
            if self._disk.add_to_sums(new):
                self._saved_counts = {name: self._saved_counts[name] + value for name, value in new.items()}

    def explain(self, source: Source | PortableKernel) -> Explanation:
        """Why a lookup hits or misses, field by field, against the nearest entry."""
        from .explain import explain

        return explain(self, source)

    # --- life

    def add_tenant(self, tenant: _Closable) -> None:
        """`tenant.close()` is called when the cache closes: it keeps something beside the programs, or uses them."""
        self._tenants.add(tenant)

    def close(self) -> None:
        """Save what is still to be saved, let the programs go, and add up the statistics. The device stays open."""
        if self.closed:
            return
        self.closed = True
        _open_caches.discard(self)
        for tenant in list(self._tenants):
            tenant.close()
        self._finish_saving()
        if self._savers is not None:
            self._savers.shutdown(wait=True)
        if self.auto_save and self._ripens and not self.device.closed:
            for slot in self._memory:
                self._ripen(slot)
        self._memory.clear()
        self._save_stats()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        # The collector may run anywhere, also inside our own locks: only hand the counts over.
        if not getattr(self, "closed", True) and os.getpid() == self._process:
            _left_behind.append((self._disk, self._unsaved_counts()))

    def __repr__(self) -> str:
        return f"<ProgramCache for {self.device.spec} in {self.cache_dir}: {len(self._memory)} programs>"

    def _check_open(self) -> None:
        if self.closed:
            self._check_not_lost()
            raise DeviceError("this cache is closed")

    def _check_not_lost(self) -> None:
        """In a forked child the device says why it cannot be used, and so does the cache."""
        if os.getpid() != self._process:
            self.device.check_open()

    def _lose(self) -> None:
        """This process was forked from the cache's. Nothing is found from here on; leases do nothing when they end."""
        self.closed = True
        self._memory.lose()

    def _log(self, text: str, name: str, *values: Any) -> None:
        log(name, text, *values)

    @property
    def folder(self) -> Path:
        """The folder of this device inside the cache folder."""
        return self._disk.folder.path


_UNBOUNDED = 1 << 60


def _bound(name: str, value: Any) -> int | None:
    """A bound in bytes; None where there is none."""
    if value is None or value == math.inf:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ArgumentError(f"{name} is a number of bytes, not {value!r}")
    return int(value)


def gone_from_here(cache_dir: str | os.PathLike[str] | None = None) -> Callable[[GpuFolder], bool]:
    """Says of a GPU's folder whether this machine used it and no longer has that GPU, driver or compiler.

    A backend that cannot be asked at the moment (not installed here, its driver down) is not taken for gone.
    """
    from ..devices.registry import fingerprints_here

    here = {
        backend: {found.folder for found in all_of_it} for backend, all_of_it in fingerprints_here(cache_dir).items()
    }

    def gone(folder: GpuFolder) -> bool:
        backend = folder.path.name.partition("_")[0]
        return folder.used_here and backend in here and folder.path.name not in here[backend]

    return gone


def _to_be_saved(slot: LoadedProgram, save: Callable[[LoadedProgram], None]) -> Callable[[], None]:
    """Have `save` called at the next release of a lease. Holds the slot weakly: it must not look as if it were in use."""
    held = weakref.ref(slot)

    def note() -> None:
        found = held()
        if found is not None:
            found.on_release = save

    return note


# Counts of caches that were dropped without being closed.
_left_behind: deque[tuple[DiskTier, dict[str, float]]] = deque()


def _save_left_behind() -> None:
    with contextlib.suppress(IndexError):
        while True:
            disk, counts = _left_behind.popleft()
            disk.add_to_sums(counts)


@atexit.register
def _close_all() -> None:
    for cache in list(_open_caches):
        with contextlib.suppress(Exception):
            cache.close()
    _save_left_behind()


def _in_child() -> None:
    """A forked child: the programs, the counts and the threads that save are the parent's."""
    for cache in list(_open_caches):
        cache._lose()
    _open_caches.clear()
    _left_behind.clear()


os.register_at_fork(after_in_child=_in_child)
