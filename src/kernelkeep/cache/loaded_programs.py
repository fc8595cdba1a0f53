"""Programs loaded on the device. Those in use stay; idle ones are evicted, least recently used first.

The hot path takes no lock. It counts: each `LoadedProgram` has a counter of uses begun and one of uses ended, and counting is
atomic: in C, and with `itertools.count`, also on a free-threaded Python from 3.14 on. Who takes a program counts first and then
looks whether it is `evicted`; who evicts it sets `evicted` first and then counts as well. So one of the two sees the other:

    a lease     begin()         evicted? Then end(), and look it up again.
    an eviction evicted = True  end(), begin(): as many ended as begun? Then nobody uses it. Else evicted = False.

An interrupt may come between any two lines. So an eviction begins a use of its own before it counts: a program may then count as
used for ever, and is kept; it never counts as idle while somebody uses it.

One more counter is both the clock of the LRU order and the count of hits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol

from .native import new_counter

_ALIASES = 8  # how many different `Source` objects of one program are remembered for the hot path


class _Program(Protocol):
    """What this module needs of a program."""

    nbytes: int

    def kernel(self, name: str | None = None) -> Any: ...
    def close(self) -> None: ...


class LoadedProgram:
    """A loaded program, and what is known of it: its key, size, uses, last use, and the sources that find it on the hot path."""

    __slots__ = (
        "__weakref__",
        "aliases",
        "begin",
        "digest",
        "end",
        "evicted",
        "nbytes",
        "on_release",
        "owner",
        "program",
        "release_lock",
        "save_state",
        "tick",
    )

    def __init__(self, owner: LoadedPrograms, digest: str, program: Any, save_state: Any = None) -> None:
        self.owner = owner
        self.digest = digest
        self.program = program
        self.nbytes = int(program.nbytes)
        self.tick = 0
        self.aliases: list[Hashable] = []
        self.on_release: Callable[[LoadedProgram], None] | None = None
        self.save_state = save_state
        self.evicted = False
        self.begin = new_counter()
        self.end = new_counter()
        self.release_lock = threading.Lock()  # on a free-threaded Python, for two threads that release one lease

    def hold(self) -> bool:
        """Begin a use, unless the program was evicted. `end()` ends it."""
        self.begin()
        if self.evicted:
            self.end()
            return False
        return True

    def evict(self) -> bool:
        """Mark an idle program as evicted; False, with nothing changed, if somebody uses it. One thread at a time."""
        self.begin()
        self.evicted = True
        # To look is to count, here in both. The ends come first: a use that ends in between makes it look busy, never idle.
        ended = self.end()
        idle = self.begin() == ended + 1
        self.end()
        if idle:
            return True
        self.evicted = False
        return False


class LoadedPrograms:
    """Programs by digest, bounded by number and bytes; least recently used idle ones are evicted first.

    Programs in use are never evicted: with too many of them it grows past its bounds (`over` is then true) and shrinks as
    leases are released.
    """

    __slots__ = (
        "__weakref__",
        "_by_digest",
        "_bytes",
        "_lock",
        "_ticks_of_no_hit",
        "evictions",
        "hot",
        "max_bytes",
        "max_programs",
        "next_tick",
        "over",
    )

    def __init__(self, max_programs: int, max_bytes: int | None) -> None:
        self.max_programs = max_programs
        self.max_bytes = max_bytes
        self.over = False
        self.evictions = 0
        self.hot: dict[Hashable, LoadedProgram] = {}
        self.next_tick = new_counter()
        self._ticks_of_no_hit = 0
        self._by_digest: dict[str, LoadedProgram] = {}
        self._bytes = 0
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._by_digest)

    def __contains__(self, digest: str) -> bool:
        return digest in self._by_digest

    def __iter__(self) -> Iterator[LoadedProgram]:
        """The programs of this moment, each in use while it is looked at."""
        with self._lock:
            programs = list(self._by_digest.values())
        for loaded in programs:
            if loaded.hold():
                try:
                    yield loaded
                finally:
                    loaded.end()

    @property
    def nbytes(self) -> int:
        """Bytes of all resident programs."""
        return self._bytes

    @property
    def hits(self) -> int:
        """How many leases were given from memory."""
        with self._lock:
            return self._tick_of_no_hit() - self._ticks_of_no_hit + 1

    def hold(self, digest: str, alias: Hashable) -> LoadedProgram | None:
        """The loaded program of a digest, in use until `end()`; `alias` finds it on the hot path from now on."""
        if digest not in self._by_digest:  # most often, since the hot path had not found it; without the lock
            return None
        with self._lock:
            loaded = self._by_digest.get(digest)
            if loaded is not None:
                loaded.begin()
                self._remember(loaded, alias)
            return loaded

    def remember(self, loaded: LoadedProgram, alias: Hashable) -> None:
        """`alias` finds the program on the hot path from now on, if it is resident."""
        with self._lock:
            if self._by_digest.get(loaded.digest) is loaded:
                self._remember(loaded, alias)

    def add(self, loaded: LoadedProgram, alias: Hashable) -> LoadedProgram:
        """Add a program and evict others to make room. Returns the one to use, which is in use until `end()`.

        It is another one if another thread added the same before.
        """
        with self._lock:
            resident = self._by_digest.get(loaded.digest)
            if resident is None:
                self._by_digest[loaded.digest] = resident = loaded
                self._bytes += loaded.nbytes
                loaded.tick = self._tick_of_no_hit()  # after the last use, before the next
            resident.begin()
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
                loaded.evicted = True
                self._take_out(loaded)

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

    def evict_idle(self) -> bool:
        """Evict every program that nobody uses; whether there was one."""
        evicted = self.evictions
        self.trim(0)
        return self.evictions > evicted

    def clear(self) -> None:
        """Forget and close every program, leased or not: the cache is closing."""
        with self._lock:
            programs = list(self._by_digest.values())
            for loaded in programs:
                loaded.evicted = True
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
        closing: list[_Program] = []
        with self._lock:
            for loaded in sorted(self._by_digest.values(), key=lambda loaded: loaded.tick):
                if self._fits(most_programs, most_bytes):
                    break
                if loaded.evict():
                    self._take_out(loaded)
                    closing.append(loaded.program)
            self.evictions += len(closing)
            self.over = not self._fits(self.max_programs, self.max_bytes)
        for program in closing:
            program.close()

    def _take_out(self, loaded: LoadedProgram) -> None:
        del self._by_digest[loaded.digest]
        self._bytes -= loaded.nbytes
        for alias in loaded.aliases:
            self.hot.pop(alias, None)

    def _fits(self, most_programs: int | None, most_bytes: int | None) -> bool:
        too_many = most_programs is not None and len(self._by_digest) > most_programs
        too_large = most_bytes is not None and self._bytes > most_bytes
        return not too_many and not too_large

    def _remember(self, loaded: LoadedProgram, alias: Hashable) -> None:
        if alias in self.hot:
            return
        if len(loaded.aliases) >= _ALIASES:
            self.hot.pop(loaded.aliases.pop(0), None)
        loaded.aliases.append(alias)
        self.hot[alias] = loaded

    def _tick_of_no_hit(self) -> int:
        """The next tick of the clock, which counts no hit."""
        self._ticks_of_no_hit += 1
        return self.next_tick()
