"""Programs loaded on the device. Those in use stay; idle ones are evicted, least recently used first.

The hot path takes no lock. The interpreter's reference counts tell whether a program is in use: a lease holds a reference
to its `LoadedProgram`, and so does a thread that has just looked it up. Eviction first takes the `LoadedProgram` out of every
table, so that nobody new can find it, then reads its reference count, and puts it back if somebody still holds it. One counter
is both the clock of the LRU order and the count of hits; `next` on it is atomic.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

_ALIASES = 8  # how many different `Source` objects of one program are remembered for the hot path


def _count_of_idle() -> int:
    """What `sys.getrefcount` says of an object that only the asking frame holds; it differs between Pythons."""
    held = {"": object()}
    loaded = held.pop("", None)
    return sys.getrefcount(loaded)


_IDLE_COUNT = _count_of_idle()


class _Program(Protocol):
    """What this module needs of a program."""

    nbytes: int

    def kernel(self, name: str | None = None) -> Any: ...
    def close(self) -> None: ...


class LoadedProgram:
    """A loaded program, and what is known of it: its key, size, last use, and the sources that find it on the hot path."""

    __slots__ = ("__weakref__", "aliases", "digest", "nbytes", "on_release", "owner", "program", "save_state", "tick")

    def __init__(self, owner: LoadedPrograms, digest: str, program: Any, save_state: Any = None) -> None:
        self.owner = owner
        self.digest = digest
        self.program = program
        self.nbytes = int(program.nbytes)
        self.tick: float = 0
        self.aliases: list[Hashable] = []
        self.on_release: Callable[[LoadedProgram], None] | None = None
        self.save_state = save_state


class LoadedPrograms:
    """Programs by digest, bounded by number and bytes; least recently used idle ones are evicted first.

    Programs in use are never evicted: with too many of them it grows past its bounds (`over` is then true) and shrinks as
    leases are released.
    """

    def __init__(self, max_programs: int, max_bytes: int | None) -> None:
        self.max_programs = max_programs
        self.max_bytes = max_bytes
        self.over = False
        self.evictions = 0
        self.hot: dict[Hashable, LoadedProgram] = {}
        self.next_tick = itertools.count(1).__next__
        self._by_digest: dict[str, LoadedProgram] = {}
        self._bytes = 0
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._by_digest)

    def __iter__(self) -> Iterator[LoadedProgram]:
        with self._lock:
            programs = list(self._by_digest.values())
        return iter(programs)

    @property
    def nbytes(self) -> int:
        """Bytes of all resident programs."""
        return self._bytes

    @property
    def hits(self) -> int:
        """How many leases were given from memory."""
        ticks: Any = self.next_tick.__self__  # type: ignore[attr-defined]
        return int(repr(ticks)[len("count(") : -1]) - 1  # the only way to look at a counter without counting

    def find(self, digest: str, alias: Hashable) -> LoadedProgram | None:
        """The loaded program of a digest; `alias` finds it on the hot path from now on."""
        with self._lock:
            loaded = self._by_digest.get(digest)
            if loaded is not None and alias not in self.hot:
                self._remember(loaded, alias)
            return loaded

    def add(self, loaded: LoadedProgram, alias: Hashable) -> LoadedProgram:
        """Add a program and evict others to make room. Returns the one to use: another thread may have added the same before."""
        with self._lock:
            resident = self._by_digest.get(loaded.digest)
            if resident is None:
                self._by_digest[loaded.digest] = resident = loaded
                self._bytes += loaded.nbytes
                loaded.tick = self.hits + 0.5  # after the last use, before the next
            if alias not in self.hot:
                self._remember(resident, alias)
            fits = self._fits(self.max_programs, self.max_bytes)
        if resident is not loaded:
            loaded.program.close()
        if not fits:
            self.shrink()
        return resident

    def forget(self, loaded: LoadedProgram) -> None:
        """Take out a program that must not be found again. It is not closed, because somebody may hold it."""
        with self._lock:
            if self._by_digest.get(loaded.digest) is loaded:
                del self._by_digest[loaded.digest]
                self._bytes -= loaded.nbytes
                for alias in loaded.aliases:
                    self.hot.pop(alias, None)

    def update_size(self, loaded: LoadedProgram) -> None:
        """The program's size changed."""
        with self._lock:
            if self._by_digest.get(loaded.digest) is loaded:
                self._bytes += int(loaded.program.nbytes) - loaded.nbytes
                loaded.nbytes = int(loaded.program.nbytes)

    def shrink(self) -> None:
        """Evict idle programs until the bounds hold, or only programs in use are left."""
        self._evict(self.max_programs, self.max_bytes)

    def trim(self, target_bytes: int) -> int:
        """Evict idle programs until at most `target_bytes` are resident; how many bytes went."""
        before = self._bytes
        self._evict(None, target_bytes)
        return before - self._bytes

    def clear(self) -> None:
        """Forget and close every program, leased or not: the cache is closing."""
        with self._lock:
            programs = list(self._by_digest.values())
            self._by_digest.clear()
            self.hot.clear()
            self._bytes = 0
            self.over = False
        for loaded in programs:
            loaded.program.close()

    def lose(self) -> None:
        """A forked child: the programs are the parent's. Takes no lock, which a thread that is not here may hold."""
        self.hot.clear()
        self.over = False
        for loaded in list(self._by_digest.values()):
            loaded.on_release = None

    def _evict(self, most_programs: int | None, most_bytes: int | None) -> None:
        closing = []
        with self._lock:
            if self._fits(most_programs, most_bytes):
                self.over = False
                return
            # Digests, not programs: a list of programs would hold references to all of them.
            ticks = [(digest, loaded.tick) for digest, loaded in self._by_digest.items()]
            for digest, _ in sorted(ticks, key=lambda pair: pair[1]):  # equal ticks: the one added first
                if self._fits(most_programs, most_bytes):
                    break
                program = self._take(digest)
                if program is not None:
                    closing.append(program)
            self.evictions += len(closing)
            self.over = not self._fits(self.max_programs, self.max_bytes)
        for program in closing:
            program.close()

    def _take(self, digest: str) -> _Program | None:
        """Take out an idle program for good; None, with nothing changed, if somebody holds it."""
        loaded = self._by_digest.pop(digest, None)
        if loaded is None:
            return None
        for alias in loaded.aliases:
            self.hot.pop(alias, None)
        # Now only this frame should hold it.
        if sys.getrefcount(loaded) > _IDLE_COUNT:
            self._by_digest[digest] = loaded
            for alias in loaded.aliases:
                self.hot[alias] = loaded
            return None
        self._bytes -= loaded.nbytes
        program: _Program = loaded.program
        return program

    def _fits(self, most_programs: int | None, most_bytes: int | None) -> bool:
        too_many = most_programs is not None and len(self._by_digest) > most_programs
        too_large = most_bytes is not None and self._bytes > most_bytes
        return not too_many and not too_large

    def _remember(self, loaded: LoadedProgram, alias: Hashable) -> None:
        if len(loaded.aliases) >= _ALIASES:
            self.hot.pop(loaded.aliases.pop(0), None)
        loaded.aliases.append(alias)
        self.hot[alias] = loaded
